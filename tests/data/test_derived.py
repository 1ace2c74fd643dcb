"""Datasets derived from others: the passages of one with the queries of another, and so on."""

import json

import pyarrow.parquet as pq
import pytest
from messages import unknown_documents

from tandem.config.datasets import sources
from tandem.data.collection import Collection
from tandem.data.dataset import run
from tandem.errors import UserError
from tandem.plan.dataset_stages import list_read_files
from tandem.store.artifact import open_artifact
from tandem.store.files import fingerprint
from tandem.store.job import Job


@pytest.fixture
def derive(tmp_path):
    """`derive(name, source, inputs, **execution)`: run the stage `dataset` on other artifacts."""

    def run_stage(name, source, inputs, params=None, **execution):
        out = tmp_path / "results" / name
        run(Job("dataset", out, {"source": source, **(params or {})}, inputs, execution))
        return open_artifact(out, "dataset")

    return run_stage


@pytest.fixture
def repeated(beir, make):
    """The BEIR folder, where two training queries repeat the test query and a third does not; with answers."""
    texts = {"q1": "alpha?", "q2": "gamma?", "q3": "Gamma", "q4": "gamma!", "q5": "delta"}
    lines = [json.dumps({"_id": query, "text": text}) for query, text in texts.items()]
    (beir / "queries.jsonl").write_text("\n".join(lines) + "\n")
    (beir / "qrels" / "train.tsv").write_text("q1\td1\t1\nq3\td2\t1\nq4\td2\t1\nq5\td1\t1\n")
    answers = [
        json.dumps({"_id": query, "answers": [query.upper()]}) for query in ("q1", "q2", "q3")
    ]
    (beir / "answers.jsonl").write_text("\n".join(answers) + "\n")
    return make("base", {"source": "beir"}, path=str(beir))


def table(artifact, name):
    return pq.read_table(artifact.path(name)).to_pylist()


def test_queries_of_one_over_passages_of_another(repeated, make, derive, tmp_path):
    folder = tmp_path / "translated"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        '{"_id": "d1", "text": "alef"}\n{"_id": "d9", "text": "tav"}\n'
    )
    (folder / "queries.jsonl").write_text('{"_id": "h1", "text": "alef?"}\n')
    (folder / "qrels" / "dev.tsv").write_text("h1\td1\t1\nh1\td9\t1\n")
    questions = make("asked", {"source": "beir"}, path=str(folder))
    dataset = derive("pair", "pair", {"corpus": repeated, "queries": questions})
    assert table(dataset, "corpus.parquet") == table(repeated, "corpus.parquet")
    assert Collection(dataset).queries("dev") == {"h1": "alef?"}
    assert Collection(dataset).qrels("dev") == {"h1": {"d1": 1, "d9": 1}}
    assert dataset.manifest.facts["queries"] == {"dev": 1}
    assert dataset.manifest.facts["warnings"] == [unknown_documents(1)]
    strict = derive(
        "strict", "pair", {"corpus": repeated, "queries": questions}, {"unknown_documents": "drop"}
    )
    assert Collection(strict).qrels("dev") == {"h1": {"d1": 1}}


def test_questions_of_a_folder_without_a_corpus(repeated, derive, tmp_path):
    folder = tmp_path / "questions"
    folder.mkdir()
    (folder / "queries.jsonl").write_text(
        '{"_id": "a", "text": "A?"}\n{"_id": "b", "text": "B?"}\n'
    )
    with pytest.raises(UserError, match=r"holds no qrels/<split>.tsv"):
        derive("pair", "pair", {"corpus": repeated}, path=str(folder))
    (folder / "answers.jsonl").write_text(
        '{"_id": "a", "answers": ["one", "two"]}\n{"_id": "b", "answers": ["x"]}\n'
    )
    dataset = derive("pair", "pair", {"corpus": repeated}, path=str(folder))
    assert Collection(dataset).answers("test") == {"a": ["one", "two"], "b": ["x"]}
    (folder / "qrels").mkdir()
    (folder / "qrels" / "train.tsv").write_text("a\td1\t1\n")
    judged = derive("judged", "pair", {"corpus": repeated}, path=str(folder))
    assert judged.manifest.facts["queries"] == {"train": 1, "test": 1}
    # -2 of one's own file is a grade that Tandem takes for its mark: it says so, as of any folder
    (folder / "qrels" / "train.tsv").write_text("a\td1\t1\na\td2\t-2\n")
    graded = derive("graded", "pair", {"corpus": repeated}, path=str(folder))
    assert graded.manifest.facts["warnings"][0].startswith("1 judgements are -2")


def test_files_that_a_pair_does_not_read_are_no_change_of_its_folder(repeated, derive, tmp_path):
    """The questions may stand beside the corpus that they were written for."""
    folder = tmp_path / "questions"
    (folder / "qrels").mkdir(parents=True)
    (folder / "qrels" / "test.tsv").write_text("a\td1\t1\n")
    (folder / "queries.jsonl").write_text('{"_id": "a", "text": "A?"}\n')
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "alef"}\n')
    entry = sources()["pair"].model_validate({"source": "pair", "corpus_of": "base"})
    planned = {"fingerprint": fingerprint(folder, list_read_files("pair", entry, folder))}
    dataset = derive("pair", "pair", {"corpus": repeated}, planned, path=str(folder))
    assert Collection(dataset).qrels("test") == {"a": {"d1": 1}}


def test_a_pair_needs_its_parts(repeated, derive, tmp_path):
    with pytest.raises(UserError, match="the input corpus is missing; give a dataset"):
        derive("pair", "pair", {}, path=str(tmp_path))
    with pytest.raises(UserError, match="has both queries_of and path"):
        derive("pair", "pair", {"corpus": repeated, "queries": repeated}, path=str(tmp_path))
    with pytest.raises(UserError, match="path: missing"):
        derive("pair", "pair", {"corpus": repeated})
    with pytest.raises(UserError, match=r"holds no queries\.jsonl"):
        derive("pair", "pair", {"corpus": repeated}, path=str(tmp_path))


def test_curated_questions_over_squads_passages(make, derive, real):
    squad = make("squad", {"source": "beir"}, path=str(real("squad")))
    dataset = derive("curated", "pair", {"corpus": squad}, path=str(real("qa-dpr-curated")))
    assert dataset.manifest.facts["passages"] == 2067
    assert dataset.manifest.facts["queries"] == {"test": 694}
    assert Collection(dataset).answers("test")["test-2"] == ["China"]
    assert dataset.manifest.facts["warnings"] == [
        warning
        for warning in squad.manifest.facts["warnings"]
        if "passages hold no text" in warning
    ]


def test_chinese_questions_over_english_passages(make, derive, real):
    chinese, english = (
        make(name, {"source": "beir"}, path=str(real(name))) for name in ("xquad-zh-en", "squad")
    )
    dataset = derive("pair", "pair", {"corpus": english, "queries": chinese})
    assert dataset.manifest.facts["queries"] == {"test": 1190}
    assert dataset.manifest.facts["passages"] == english.manifest.facts["passages"] == 2067
