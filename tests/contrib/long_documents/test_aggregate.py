"""Stage `aggregate`: a hand-made run over windows, aggregated by hand."""

import pytest
from messages import other_dataset
from trec import iter_trec

from tandem.contrib.long_documents.windows import run
from tandem.data.dataset import run as cut
from tandem.errors import UserError
from tandem.store.artifact import open_artifact

CUT = {"length": 2, "stride": 2, "unit": "words", "most": None, "titles": "repeat", "label": "all"}
DOCUMENTS = [
    ("a", "", "1 2 3 4 5 6"),
    ("b", "", "1"),
    ("c", "", "1 2 3"),
    ("a#0", "", ""),
    ("e", "", "1 2 3 4 5"),
]
# c#0 and most of e were not found; of test-owl all scores are equal; of test-seal no first window was found
FOUND = [
    ("test-bat", ["a#1", "b#0", "c#1", "a#0", "a#2", "e#1"], [4.0, 3.0, 2.0, -1.0, -2.0, -2.0]),
    ("test-owl", ["e#0", "c#0", "a#0#0", "b#0"], [5.0, 5.0, 5.0, 5.0]),
    ("test-seal", ["e#2"], [-3.0]),
]


@pytest.fixture
def documents(make_dataset, tmp_path):
    return make_dataset(tmp_path / "tiny" / "dataset" / "tiny-0123456789", DOCUMENTS)


@pytest.fixture
def windows(documents, make_job, tmp_path):
    job = make_job(
        "dataset",
        tmp_path / "w" / "dataset" / "w-0123456789",
        {"source": "windows", **CUT},
        {"of": documents},
    )
    cut(job)
    return open_artifact(job.out)


@pytest.fixture
def make_run(write_ranked, tmp_path):
    """`make_run(dataset, kind, lists, **params)`: the hand-made run as an artifact."""

    def make(dataset, kind="bm25", lists=FOUND, **params):
        return write_ranked(
            kind, tmp_path / "w" / kind / "run-0123456789", params, {"dataset": dataset}, lists
        )

    return make


@pytest.fixture
def aggregated(make_job, make_run, documents, windows, tmp_path):
    """`aggregated(method, run=…, **params)`: query → [(document, score)], as written."""

    def aggregate(method, ranked=None, **params):
        inputs = {"dataset": documents, "windows": windows, "run": ranked or make_run(windows)}
        settings = {"method": method, "depth": 10, "split": "test", "missing": "lowest", **params}
        job = make_job(
            "aggregate", tmp_path / "tiny" / "aggregate" / f"{method}-0123456789", settings, inputs
        )
        run(job)
        return {
            # rounded: a tie is written as the next lower float32
            query: list(zip(docs, scores.round(5).tolist(), strict=True))
            for query, docs, scores in iter_trec(job.out / "run.trec")
        }

    return aggregate


def test_the_best_window(aggregated, tmp_path):
    ranked = aggregated("max")
    assert ranked["test-bat"] == [("a", 4.0), ("b", 3.0), ("c", 2.0), ("e", -2.0)]
    # ties by document id
    assert ranked["test-owl"] == [("a#0", 5.0), ("b", 5.0), ("c", 5.0), ("e", 5.0)]
    assert ranked["test-seal"] == [("e", -3.0)]
    facts = open_artifact(tmp_path / "tiny" / "aggregate" / "max-0123456789").manifest.facts
    # there are five documents
    assert (facts["queries"], facts["shorter"], facts["lines"]) == (3, 3, 9)


def test_the_first_window_or_none(aggregated):
    ranked = aggregated("first")
    assert ranked["test-bat"] == [("b", 3.0), ("a", -1.0)]
    assert [doc for doc, _ in ranked["test-owl"]] == ["a#0", "b", "c", "e"]
    assert "test-seal" not in ranked


def test_the_sum_with_windows_that_were_not_found(aggregated):
    # c: 2 - 2; e: three windows of -2
    assert aggregated("sum")["test-bat"] == [("b", 3.0), ("a", 1.0), ("c", 0.0), ("e", -6.0)]
    assert aggregated("sum", missing="zero")["test-bat"] == [
        ("b", 3.0),
        ("c", 2.0),
        ("a", 1.0),
        ("e", -2.0),
    ]


def test_the_mean_of_the_k_best(aggregated):
    assert aggregated("kmax", k=2)["test-bat"] == [("b", 3.0), ("a", 1.5), ("c", 0.0), ("e", -2.0)]
    # of e two windows count 0
    assert aggregated("kmax", k=2, missing="zero")["test-bat"] == [
        ("b", 3.0),
        ("a", 1.5),
        ("c", 1.0),
        ("e", 0.0),
    ]
    assert aggregated("kmax", k=1)["test-bat"] == aggregated("max")["test-bat"]


def test_the_best_documents_are_kept_and_the_same_bytes_written(aggregated, tmp_path):
    assert aggregated("max", depth=2)["test-bat"] == [("a", 4.0), ("b", 3.0)]
    file = tmp_path / "tiny" / "aggregate" / "max-0123456789" / "run.trec"
    before = file.read_bytes()
    aggregated("max", depth=2)
    assert file.read_bytes() == before


def test_of_a_re_ranked_run_only_what_was_scored_counts(aggregated, make_run, windows):
    ranked = aggregated("sum", make_run(windows, "rerank", depth=2))
    assert ranked["test-bat"] == [("a", 4.0 + 2 * 3.0), ("b", 3.0)]


def test_what_does_not_fit_is_refused(
    aggregated, make_job, make_run, make_dataset, documents, windows, tmp_path
):
    with pytest.raises(UserError, match=other_dataset("run", "tiny-0123456789", "w-0123456789")):
        aggregated("max", make_run(documents, lists=[("test-bat", ["a"], [1.0])]))
    other = make_dataset(tmp_path / "other" / "dataset" / "other-0123456789", DOCUMENTS)
    params = {"method": "max", "depth": 10, "split": "test"}
    inputs = {"dataset": other, "windows": windows, "run": make_run(windows)}
    with pytest.raises(
        UserError, match="holds windows of tiny-0123456789; expected windows of other-0123456789"
    ):
        run(make_job("aggregate", tmp_path / "no-0123456789", params, inputs))
    with pytest.raises(UserError, match="holds windows of nothing"):
        run(make_job("aggregate", tmp_path / "no-0123456789", params, inputs | {"windows": other}))
