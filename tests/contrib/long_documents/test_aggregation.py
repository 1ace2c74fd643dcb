"""FirstP, MaxP, SumP and K-MaxP on scores worked out by hand, and against loops over random ones."""

import numpy as np
import pytest

from tandem.contrib.long_documents.windows import aggregate_windows
from tandem.errors import UserError
from tandem.stages.retrieval import aggregation

SCORES = [-1.0, 4.0, -2.0, 3.0, -5.0, -0.5]  # of documents with 3, 1 and 2 windows
SIZES = [3, 1, 2]


@pytest.mark.parametrize(
    ("method", "k", "values"),
    [
        ("first", 1, [-1.0, 3.0, -5.0]),
        ("max", 1, [4.0, 3.0, -0.5]),
        ("sum", 1, [1.0, 3.0, -5.5]),
        ("kmax", 1, [4.0, 3.0, -0.5]),
        ("kmax", 2, [1.5, 3.0, -2.75]),
        ("kmax", 9, [1 / 3, 3.0, -2.75]),
    ],
)
def test_by_hand(method, k, values):
    assert aggregate_windows(
        method, np.array(SCORES), np.array(SIZES), k
    ).tolist() == pytest.approx(values, abs=1e-15)


def test_of_no_document():
    assert {
        len(aggregate_windows(method, np.empty(0), np.empty(0, np.int64))) for method in aggregation
    } == {0}


def test_against_loops():
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 40, 60)
    scores = rng.normal(size=sizes.sum())
    parts = np.split(scores, np.cumsum(sizes)[:-1])
    plain = {
        "first": [part[0] for part in parts],
        "max": [max(part) for part in parts],
        "sum": [sum(part) for part in parts],
        "kmax": [sum(sorted(part, reverse=True)[:4]) / min(4, len(part)) for part in parts],
    }
    for method, values in plain.items():
        np.testing.assert_allclose(
            aggregate_windows(method, scores, sizes, 4), values, rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("method", list(aggregation))
def test_a_documents_score_does_not_depend_on_its_neighbours(method):
    """To the last bit: queries are aggregated many at a time."""
    rng = np.random.default_rng(6)
    sizes = rng.integers(1, 40, 50)
    scores = rng.normal(size=sizes.sum())
    parts = np.split(scores, np.cumsum(sizes)[:-1])
    alone = [aggregate_windows(method, part, np.array([len(part)]), 3)[0] for part in parts]
    assert aggregate_windows(method, scores, sizes, 3).tolist() == alone


@pytest.mark.parametrize(
    "method",
    [
        lambda scores, starts, k: scores,
        lambda scores, starts, k: [1.0, float("nan"), 2.0],
        lambda scores, starts, k: [1.0, float("inf"), 2.0],
        lambda scores, starts, k: ["much", "some", "none"],
        lambda scores, starts, k: [[1.0], [1.0, 2.0], [3.0]],
    ],
    ids=["of the windows", "NaN", "infinite", "words", "lists"],
)
def test_a_plugins_method_must_give_a_score_for_each_document(monkeypatch, method):
    """A document whose score was NaN was left out of the run, in silence."""
    monkeypatch.setitem(aggregation._entries, "own", method)
    with pytest.raises(UserError, match="own: must give a number for each of 3 documents"):
        aggregate_windows("own", np.array(SCORES), np.array(SIZES))
