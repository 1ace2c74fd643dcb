"""Scripts of `examples/` that write a collection of the pages of results from one published file."""

import csv
import io
import json
import sys
from collections import defaultdict
from importlib import import_module

import pytest
from tiny_project import ROOT

SPLITS = ("train", "dev", "test")
ANOTHER = "is not the one that docs/results was measured with"
HEADER = "department,title,ask,answer\n"


@pytest.fixture
def bring(tmp_path, monkeypatch, capsys):
    """`bring(script, content)`: the folder that a script writes from a file of this content, and what it says."""
    monkeypatch.syspath_prepend(ROOT / "examples")

    def run(script, content):
        file, folder = tmp_path / "published", tmp_path / "data/collection"
        file.write_bytes(content)
        monkeypatch.setattr(sys, "argv", [f"{script}.py", str(file), str(folder)])
        import_module(script).main()
        return folder, capsys.readouterr().out

    return run


def squad_json(articles):
    document = {"data": [{"title": title, "paragraphs": own} for title, own in articles]}
    return json.dumps(document).encode()


def read_rows(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def read_judgements(file):
    return [line.split("\t")[:2] for line in file.read_text().splitlines()[1:]]


def ask(at):
    return {"id": f"q{at}", "question": " How  many? ", "answers": ["x", "y", "x"]}


ARTICLES = [
    (f"On_{at:02}", [{"context": f"{at} is\na number.", "qas": [ask(at)]}]) for at in range(48)
]


def test_no_article_of_squad_has_questions_of_two_splits(bring):
    folder, said = bring("squad", squad_json(ARTICLES[::-1]))
    judged = {split: read_judgements(folder / f"qrels/{split}.tsv") for split in SPLITS}
    assert [len(judged[split]) for split in SPLITS] == [28, 5, 15]
    relevant = {query: passage for rows in judged.values() for query, passage in rows}
    # passages are numbered by title, whatever the file's order
    assert relevant == {f"q{at}": f"dev{at:04}" for at in range(48)}
    passages, queries = read_rows(folder / "corpus.jsonl"), read_rows(folder / "queries.jsonl")
    assert passages[7] == {"_id": "dev0007", "title": "On 07", "text": "7 is a number."}
    assert queries[7] == {"_id": "q7", "text": "How many?"}
    assert read_rows(folder / "answers.jsonl")[7] == {"_id": "q7", "answers": ["x", "y"]}
    assert said.count(ANOTHER) == 2


def test_a_title_is_of_the_split_that_its_md5_says(bring):
    rows = "心血管科,高血压该治疗什么？,…,先控制食盐。\n消化科,肾肿瘤,…,手术。\n"
    again = '心血管科,高血压该治疗什么？,…,"遵医嘱,\n　服药。"\n'
    folder, said = bring("cn_med_im", (HEADER + rows + again).encode("gb18030"))
    assert read_rows(folder / "queries.jsonl") == [{"_id": "q00000", "text": "高血压该治疗什么？"}]
    texts = [row["text"] for row in read_rows(folder / "corpus.jsonl")]
    assert texts == ["先控制食盐。", "遵医嘱, 服药。"]
    # its md5 is 7 modulo 20
    judged = [read_judgements(folder / f"qrels/{split}.tsv") for split in SPLITS]
    assert judged == [[["q00000", "a00000"], ["q00000", "a00001"]], [], []]
    assert "2 passages, 1 queries" in said


@pytest.mark.parametrize(
    ("script", "content", "line"),
    [
        ("squad", squad_json(ARTICLES[1:]), "has 47 articles, not 48; needed is SQuAD"),
        ("squad", b"[", "needed is SQuAD"),
        ("cn_med_im", b"title,answer\n", "has columns title, answer, not department, title"),
        ("cn_med_im", "ß".encode("latin-1"), "is not encoded as GB 18030"),
    ],
)
def test_another_file_is_refused_and_leaves_nothing(bring, script, content, line, tmp_path):
    with pytest.raises(SystemExit) as refusal:
        bring(script, content)
    assert line in str(refusal.value)
    assert not list((tmp_path / "data").iterdir())


def test_the_folder_of_squad_is_written_again_byte_for_byte(bring, real):
    measured = real("squad")
    texts = {row["_id"]: row["text"] for row in read_rows(measured / "queries.jsonl")}
    answers = {row["_id"]: row["answers"] for row in read_rows(measured / "answers.jsonl")}
    passage_of = {
        query: passage
        for split in SPLITS
        for query, passage in read_judgements(measured / f"qrels/{split}.tsv")
    }
    questions = defaultdict(list)
    for query, text in texts.items():
        question = {"id": query, "question": text, "answers": answers[query]}
        questions[passage_of[query]].append(question)
    articles = defaultdict(list)
    for row in read_rows(measured / "corpus.jsonl"):
        paragraph = {"context": row["text"], "qas": questions[row["_id"]]}
        articles[row["title"].replace(" ", "_")].append(paragraph)
    folder, said = bring("squad", squad_json(articles.items()))
    for file in folder.rglob("*.*"):
        assert file.read_bytes() == (measured / file.relative_to(folder)).read_bytes()
    assert ANOTHER not in said


def test_the_folder_of_chinese_answers_is_written_again(bring, real):
    measured = real("cn-med-im")
    texts = {row["_id"]: row["text"] for row in read_rows(measured / "queries.jsonl")}
    answers = {row["_id"]: row["text"] for row in read_rows(measured / "corpus.jsonl")}
    pairs = [pair for split in SPLITS for pair in read_judgements(measured / f"qrels/{split}.tsv")]
    table = io.StringIO()
    table.write(HEADER)
    # both are numbered in the file's order
    for query, passage in sorted(pairs):
        csv.writer(table).writerow(["内科", texts[query], "…", answers[passage]])
    folder, said = bring("cn_med_im", table.getvalue().encode("gb18030"))
    assert ANOTHER not in said
    assert (folder / "corpus.jsonl").read_bytes() == (measured / "corpus.jsonl").read_bytes()
