"""`examples/squad.py`: SQuAD's dev set as the folder data/squad that pages of results were measured with."""

import json
import runpy
import sys
from collections import defaultdict

import pytest
from tiny_project import ROOT

SPLITS = ("train", "dev", "test")


@pytest.fixture
def bring(tmp_path, monkeypatch, capsys):
    """`bring(articles)`: the folder that the script writes from SQuAD's JSON, and what it says."""

    def run(articles):
        file, folder = tmp_path / "dev-v1.1.json", tmp_path / "data/squad"
        document = {"data": [{"title": title, "paragraphs": own} for title, own in articles]}
        file.write_text(json.dumps(document), encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["squad.py", str(file), str(folder)])
        runpy.run_path(str(ROOT / "examples/squad.py"), run_name="__main__")
        return folder, capsys.readouterr().out

    return run


def ask(number, text="Who?", answers=("A",)):
    return {"id": f"q{number}", "question": text, "answers": [{"text": text} for text in answers]}


def read_rows(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def read_judgements(file):
    return [line.split("\t") for line in file.read_text().splitlines()[1:]]


ARTICLES = [
    (f"On_{at:02}", [{"context": f"{at} is  a\nnumber.", "qas": [ask(at, " How many? ", "xyx")]}])
    for at in range(48)
]


def test_no_article_has_questions_of_two_splits(bring):
    folder, said = bring(ARTICLES[::-1])
    judged = {split: read_judgements(folder / f"qrels/{split}.tsv") for split in SPLITS}
    assert [len(judged[split]) for split in SPLITS] == [28, 5, 15]
    relevant = {query: passage for rows in judged.values() for query, passage, _ in rows}
    # numbered by title, whatever the file's order
    assert relevant == {f"q{at}": f"dev{at:04}" for at in range(48)}
    passages, queries = read_rows(folder / "corpus.jsonl"), read_rows(folder / "queries.jsonl")
    assert passages[7] == {"_id": "dev0007", "title": "On 07", "text": "7 is a number."}
    assert queries[7] == {"_id": "q7", "text": "How many?"}
    assert read_rows(folder / "answers.jsonl")[7] == {"_id": "q7", "answers": ["x", "y"]}
    # none of the real ones
    assert said.count("is not the one that docs/results was measured with") == 2


def test_another_number_of_articles_is_refused_and_leaves_nothing(bring, tmp_path):
    with pytest.raises(SystemExit, match=r"dev-v1\.1\.json: 47 articles, .* has 48"):
        bring(ARTICLES[1:])
    assert [path.name for path in tmp_path.iterdir()] == ["dev-v1.1.json"]


def test_the_real_folder_is_written_again_byte_for_byte(bring, real):
    squad = real("squad")
    texts = {row["_id"]: row["text"] for row in read_rows(squad / "queries.jsonl")}
    answers = {row["_id"]: row["answers"] for row in read_rows(squad / "answers.jsonl")}
    passage_of = {
        query: passage
        for split in SPLITS
        for query, passage, _ in read_judgements(squad / f"qrels/{split}.tsv")
    }
    questions = defaultdict(list)
    for query, text in texts.items():
        question = {"id": query, "question": text, "answers": answers[query]}
        questions[passage_of[query]].append(question)
    articles = defaultdict(list)
    for row in read_rows(squad / "corpus.jsonl"):
        paragraph = {"context": row["text"], "qas": questions[row["_id"]]}
        articles[row["title"].replace(" ", "_")].append(paragraph)
    folder, said = bring(articles.items())
    for file in folder.rglob("*.*"):
        assert file.read_bytes() == (squad / file.relative_to(folder)).read_bytes()
    assert said == f"{folder}: written; 48 articles, 2,067 passages\n"
