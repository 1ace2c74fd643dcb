"""RM3, BM25F and tuning by Lucene, each against the formula in plain Python."""

import csv
import json
import math
import random
from collections import Counter

import pytest
from trec import iter_trec

from tandem.store.artifact import open_artifact

DATASET = {"dataset": "dataset"}
BOTH = {"dataset": "dataset", "lucene": "index"}
WORDS = {"analyzer": "whitespace", "language": "en"}
K1, B = 0.9, 0.4
BM25 = {"k1": K1, "b": B, "depth": 100, "split": "test"}


def hits(folder):
    """A run as query → document → score."""
    run = iter_trec(folder / "run.trec")
    return {query: dict(zip(docs, scores.tolist(), strict=True)) for query, docs, scores in run}


def saturated(tf, length, mean, k1=K1, b=B):
    """BM25's part of a term's frequency."""
    return tf / (tf + k1 * (1 - b + b * length / mean))


def idf(df, count):
    """Lucene's."""
    return math.log(1 + (count - df + 0.5) / (df + 0.5))


def ranked(docs, query):
    """BM25 of documents (id → counts of terms) for weighted terms, best first, without those that score nothing."""
    df = Counter(term for doc in docs.values() for term in doc)
    mean = sum(sum(doc.values()) for doc in docs.values()) / len(docs)
    scores = {
        name: sum(
            w * idf(df[t], len(docs)) * saturated(doc[t], sum(doc.values()), mean)
            for t, w in query.items()
        )
        for name, doc in docs.items()
    }
    return sorted(
        ((score, name) for name, score in scores.items() if score > 0),
        key=lambda pair: (-pair[0], pair[1]),
    )


def made_up(count, vocabulary, seed):
    """Documents of five different terms, which occur five, four, three, two times and once."""
    rng = random.Random(seed)
    drawn = {f"d{i:03}": rng.sample(range(vocabulary), 5) for i in range(count)}
    return {
        name: Counter({f"w{t}": 5 - at for at, t in enumerate(terms)})
        for name, terms in drawn.items()
    }


def expanded(docs, terms, fb_terms, fb_docs, original_query_weight):
    """RM3's query as the docstring of `lexical.lucene` has it."""
    df = Counter(term for doc in docs.values() for term in doc)
    model = Counter()
    for score, name in ranked(docs, terms)[:fb_docs]:
        selected = Counter({t: tf for t, tf in docs[name].items() if df[t] / len(docs) <= 0.1})
        selected = dict(selected.most_common(fb_terms))
        for term, tf in selected.items():
            model[term] += tf / sum(selected.values()) * score
    model, weight = dict(model.most_common(fb_terms)), original_query_weight
    query = Counter({term: weight * count / sum(terms.values()) for term, count in terms.items()})
    for term, value in model.items():
        query[term] += (1 - weight) * value / sum(model.values())
    return query


def test_rm3_by_its_formula(stages, words, collection, tmp_path):
    docs = made_up(120, 100, seed=3)
    # one term in more than a tenth of the documents, which feedback leaves out
    for name in list(docs)[:40]:
        docs[name]["everywhere"] = 6
    queries = {"one": "w7", "two": "w3 w50 w50", "common": "everywhere w9", "absent": "nowhere"}
    collection({name: " ".join(doc.elements()) for name, doc in docs.items()}, queries)
    rm3 = {"fb_terms": 3, "fb_docs": 4, "original_query_weight": 0.6}
    index = words("lucene", "index", WORDS | {"vectors": True}, DATASET)
    search = words("bm25", "run", BM25 | {f"rm3.{key}": value for key, value in rm3.items()}, BOTH)
    plain = words("bm25", "plain", BM25, BOTH)
    assert stages(index, search, plain, JAVA_TOOL_OPTIONS="-Xcheck:jni") == [None, None, None]
    results = hits(tmp_path / "run")
    for name, text in queries.items():
        terms = Counter(text.split())
        expected = ranked(docs, expanded(docs, terms, **rm3))
        assert results.get(name, {}) == pytest.approx(
            {doc: score for score, doc in expected[:100]}, rel=1e-4
        )
        assert hits(tmp_path / "plain").get(name, {}) == pytest.approx(
            {doc: score for score, doc in ranked(docs, terms)[:100]}, rel=1e-4
        )
    # found by other terms than the query's
    assert len(results["one"]) > len(hits(tmp_path / "plain")["one"])


def test_fields_are_scored_as_one_by_bm25f(stages, words, make_dataset_of, tmp_path):
    rng = random.Random(5)
    rows = {
        f"d{i:02}": (
            [f"w{rng.randrange(8)}" for _ in range(rng.randrange(4))],
            [f"w{rng.randrange(8)}" for _ in range(rng.randrange(1, 12))],
        )
        for i in range(30)
    }
    queries = {"a": "w1", "b": "w2 w5 w2", "c": "w0 w1 w2 w3", "none": "absent"}
    make_dataset_of(
        [(name, " ".join(title), " ".join(text)) for name, (title, text) in rows.items()], queries
    )
    weights = {"title": 3.0, "text": 1.0}
    how = {f"fields.{name}": weight for name, weight in weights.items()}
    lines = [
        words("lucene", "index", WORDS | {"fields": True}, DATASET),
        *(
            words("bm25", f"run{n}", BM25 | how | {"depth": n}, BOTH, {"workers": 2})
            for n in (100, 4)
        ),
        words("bm25", "title", BM25 | {"fields.title": 1.0}, BOTH),
    ]
    assert stages(*lines, JAVA_TOOL_OPTIONS="-Xcheck:jni") == [None] * 4
    for folder, field_weights in (("run100", weights), ("title", {"title": 1.0})):
        fields = [(weight, {"title": 0, "text": 1}[name]) for name, weight in field_weights.items()]
        count = max(sum(bool(row[at]) for row in rows.values()) for _, at in fields)
        lengths = {name: sum(w * len(row[at]) for w, at in fields) for name, row in rows.items()}
        mean = sum(lengths.values()) / count
        for query, text in queries.items():
            expected = Counter()
            for term, times in Counter(text.split()).items():
                df = max(sum(term in row[at] for row in rows.values()) for _, at in fields)
                for name, row in rows.items():
                    if tf := sum(w * row[at].count(term) for w, at in fields):
                        expected[name] += (
                            times * idf(df, count) * saturated(tf, lengths[name], mean)
                        )
            assert hits(tmp_path / folder).get(query, {}) == pytest.approx(dict(expected), rel=1e-5)
    cut = {query: list(scores.items())[:4] for query, scores in hits(tmp_path / "run100").items()}
    assert {query: list(scores.items()) for query, scores in hits(tmp_path / "run4").items()} == cut


def reciprocal(results, relevant):
    """RR@10 of one query."""
    ranks = [rank for rank, doc in enumerate(list(results)[:10], 1) if doc == relevant]
    return 1 / ranks[0] if ranks else 0.0


@pytest.mark.parametrize("engine", ["lucene", "bm25s"])
def test_the_best_of_the_grid_is_chosen_and_searched_with(
    stages, words, collection, tmp_path, engine
):
    docs = made_up(60, 12, seed=9)
    # The first passage is the relevant one of every query (see `collection`): long, and full of the terms.
    docs = {"d": Counter({f"w{t}": 3 for t in range(12)})} | docs
    queries = {f"q{t}": f"w{t} w{(t + 1) % 12}" for t in range(12)}
    collection({name: " ".join(doc.elements()) for name, doc in docs.items()}, queries)
    grid = {"k1": [0.2, 3.0], "b": [0.0, 0.9]}
    tune = grid | {"measure": "RR@10", "split": "test", "queries": 10, "depth": 10}
    inputs = {"dataset": "dataset", engine: "index"}
    settings = BM25 | {"depth": 10, "k1": None, "b": None}
    params = {key: value for key, value in settings.items() if value is not None}
    lines = [
        words(engine, "index", WORDS, DATASET),
        words("tune_bm25", "tuned", tune, inputs),
        words("bm25", "run", params, inputs | {"tuned": "tuned"}),
        *(
            words("bm25", f"{k1}-{b}", params | {"k1": k1, "b": b}, inputs)
            for k1 in grid["k1"]
            for b in grid["b"]
        ),
    ]
    assert stages(*lines) == [None] * 7
    points = {
        (k1, b): sum(
            reciprocal(hits(tmp_path / f"{k1}-{b}").get(q, {}), "d") for q in list(queries)[:10]
        )
        / 10
        for k1 in grid["k1"]
        for b in grid["b"]
    }
    assert len(set(points.values())) > 2
    with open(tmp_path / "tuned" / "grid.csv") as file:
        read = {
            (float(row["k1"]), float(row["b"])): float(row["RR@10"]) for row in csv.DictReader(file)
        }
    assert read == pytest.approx(points)
    chosen = json.loads((tmp_path / "tuned" / "chosen.json").read_text())
    best = max(points, key=points.get)
    assert (chosen["k1"], chosen["b"], chosen["mean"]) == (*best, pytest.approx(points[best]))
    assert hits(tmp_path / "run") == hits(tmp_path / f"{best[0]}-{best[1]}")
    assert open_artifact(tmp_path / "tuned").manifest.facts["queries"] == 10


def test_tuning_looks_below_what_the_judgements_exclude(stages, words, collection, tmp_path):
    # The relevant passage is the third; the two above it are excluded (-100).
    collection({"d": "w0 w1 w2 w3", "x": "w0", "y": "w0 w1", "z": "w2"}, {"q": "w0"})
    with open(tmp_path / "beir" / "qrels" / "test.tsv", "a") as file:
        file.write("q\tx\t-100\nq\ty\t-100\n")
    tune = {"k1": [0.9], "b": [0.4], "measure": "RR@1", "split": "test", "queries": 10, "depth": 1}
    lines = [
        words("dataset", "excluding", {"source": "beir"}, {}, {"path": str(tmp_path / "beir")}),
        words("bm25s", "index", WORDS, {"dataset": "excluding"}),
        words("tune_bm25", "tuned", tune, {"dataset": "excluding", "bm25s": "index"}),
    ]
    assert stages(*lines) == [None] * 3
    assert json.loads((tmp_path / "tuned" / "chosen.json").read_text())["mean"] == 1


def test_wrong_tunings_are_one_line(stages, words, collection, tmp_path):
    collection({"a": "foo"}, {"q": "foo"})
    tune = {
        "k1": [0.9],
        "b": [0.4],
        "measure": "RR@10",
        "split": "test",
        "queries": None,
        "depth": 10,
    }
    bad = {
        "tune_bm25: --params.b.1 is 1.5; allowed: ": {"b": [0.4, 1.5]},
        "measures: MRP@10 is not a measure": {"measure": "MRP@10"},
        f"{tmp_path}/dataset/qrels.parquet: holds no split dev; it holds test": {"split": "dev"},
    }
    inputs = {"dataset": "dataset", "bm25s": "index"}
    index = words("bm25s", "index", WORDS, DATASET)
    errors = stages(
        index, *(words("tune_bm25", "tuned", tune | wrong, inputs) for wrong in bad.values())
    )
    assert errors[0] is None
    for line, message in zip(errors[1:], bad, strict=True):
        assert line.startswith(message)
    other = words("bm25s", "other", WORDS | {"analyzer": "none"}, DATASET)
    good = words("tune_bm25", "tuned", tune, inputs)
    search = words(
        "bm25", "run", {"depth": 10, "split": "test"}, inputs | {"bm25s": "other", "tuned": "tuned"}
    )
    errors = stages(other, good, search)
    message = (
        f"{tmp_path}/tuned: was tuned on another index than {tmp_path}/other; tune on this one"
    )
    assert errors == [None, None, message]
