"""Fused scores worked out by hand, and equality with a brute force that knows neither arrays nor pools."""

import math

import numpy as np
import pytest

from tandem.contrib.fusion.fuse import pool_lists, select_top
from tandem.contrib.fusion.options import FuseParams, TuneFusionParams, fusion_grid
from tandem.stages.retrieval import fusion

FIRST = (["a", "b", "c"], np.array([5, 3, 1], np.float32))
SECOND = (["d", "b"], np.array([-3, -1], np.float32))  # not in the order of its scores
Z = math.sqrt(1.5)  # (5 - 3) / standard deviation of 5, 3, 1


def fused(lists, method, **settings):
    pooled = pool_lists(lists)
    return dict(
        zip(pooled.docs, fusion[method](pooled, FuseParams(**settings)).tolist(), strict=True)
    )


def test_reciprocal_ranks_by_hand():
    expected = {"a": 1 / 61, "b": 1 / 62 + 1 / 61, "c": 1 / 63, "d": 1 / 62}
    assert fused([FIRST, SECOND], "rrf", k=60.0) == pytest.approx(expected, rel=1e-15)
    assert fused([FIRST, SECOND], "rrf", k=0.0) == {"a": 1, "b": 1.5, "c": 1 / 3, "d": 0.5}


@pytest.mark.parametrize(
    ("normalize", "weights", "expected"),
    [
        ("min_max", [0.6, 0.4], {"a": 0.6, "b": 0.6 * 0.5 + 0.4, "c": 0, "d": 0}),
        ("z_score", [0.5, 0.5], {"a": (Z - 1) / 2, "b": 0.5, "c": (-Z - 1) / 2, "d": (-Z - 1) / 2}),
        ("none", [1, 2], {"a": 5 - 6, "b": 3 - 2, "c": 1 - 6, "d": 1 - 6}),
        ("min_max", [0, 3], {"a": 0, "b": 3, "c": 0, "d": 0}),
    ],
)
def test_weighted_scores_by_hand(normalize, weights, expected):
    random_hits = fused([FIRST, SECOND], "weighted", normalize=normalize, weights=weights)
    assert random_hits == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("normalize", "expected"),
    [
        ("min_max", {"a": 1, "b": 1 + 1, "c": 0}),
        ("z_score", {"a": -1, "b": 1, "c": -1}),
        ("none", {"a": 7 + 1, "b": 7 + 2, "c": 7 + 1}),
    ],
)
def test_a_list_of_equal_scores(normalize, expected):
    lists = [(["b", "a"], np.array([7, 7], np.float32)), (["b", "c"], np.array([2, 1], np.float32))]
    assert fused(lists, "weighted", normalize=normalize, weights=[1, 1]) == pytest.approx(expected)


@pytest.mark.parametrize("normalize", ["min_max", "z_score", "none"])
def test_a_run_that_found_nothing_changes_no_order(normalize):
    settings = {"normalize": normalize, "weights": [0.3, 0.7]}
    alone, beside = fused([FIRST, ([], np.empty(0))], "weighted", **settings), FIRST
    assert sorted(alone, key=alone.get, reverse=True) == beside[0]
    single = [(["a"], np.array([-4], np.float32)), ([], np.empty(0))]
    expected = {"min_max": 0.3, "z_score": 0.0, "none": -4 * 0.3}[normalize]
    assert fused(single, "weighted", **settings) == {"a": pytest.approx(expected)}


def test_documents_that_share_the_same_ranks_tie_to_the_bit():
    """1/6 + 1/7 + 1/8 and 0.1 + 0.2 + 0.3 depend on the order of their terms in the last bit; the score does not."""
    terms = [1 / 6, 1 / 7, 1 / 8]
    assert len({terms[at] + terms[at - 1] + terms[at - 2] for at in range(3)}) == 2
    docs = ["a", "b", "c"]
    lists = [(docs[at:] + docs[:at], np.array([3, 2, 1], np.float32)) for at in range(3)]
    assert len(set(fused(lists, "rrf", k=5.0).values())) == 1
    assert (
        len(set(fused(lists, "weighted", normalize="none", weights=[0.1, 0.1, 0.1]).values())) == 1
    )


def test_equal_scores_are_cut_by_document_id():
    pooled = pool_lists([(["z", "y", "x", "w"], np.array([1, 1, 1, 0], np.float32))])
    docs, scores = select_top(
        pooled.docs, fusion["weighted"](pooled, FuseParams(normalize="none", weights=[2])), 2
    )
    assert (docs, scores.tolist()) == (["x", "y"], [2, 2])


def test_scores_that_only_keep_an_order_are_ranks_and_no_scores():
    pooled = pool_lists([(["a", "b", "c"], np.array([2.5, -1, -2], np.float32))], [1])
    assert pooled.ranks[:, 0].tolist() == [1, 2, 3]
    assert np.isnan(pooled.scores[1:, 0]).all()
    assert fused([FIRST], "rrf", k=60.0) == pytest.approx({"a": 1 / 61, "b": 1 / 62, "c": 1 / 63})
    assert fusion["weighted"](pooled, FuseParams(normalize="min_max", weights=[1])).tolist() == [
        1,
        0,
        0,
    ]


def by_hand(lists, method, k=None, normalize=None, weights=None):
    """The fused scores, document by document and run by run."""
    scores = {}
    for doc in {doc for docs, _ in lists for doc in docs}:
        terms = []
        for at, (docs, raw) in enumerate(lists):
            ranked = sorted(zip(docs, raw, strict=True), key=lambda pair: (-pair[1], pair[0]))
            values = [float(score) for _, score in ranked]
            if method == "rrf":
                terms += [1 / (k + rank) for rank, (name, _) in enumerate(ranked, 1) if name == doc]
                continue
            own = dict(zip([name for name, _ in ranked], values, strict=True)).get(doc)
            if not values:
                value = 0.0
            elif normalize == "min_max":
                low, high = min(values), max(values)
                value = 0.0 if own is None else 1.0 if low == high else (own - low) / (high - low)
            elif normalize == "z_score":
                mean = math.fsum(values) / len(values)
                deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
                value = (
                    0.0
                    if min(values) == max(values)
                    else ((values[-1] if own is None else own) - mean) / deviation
                )
            else:
                value = values[-1] if own is None else own
            terms.append(weights[at] * value)
        scores[doc] = math.fsum(terms)
    return scores


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("rrf", {"k": 60.0}),
        ("weighted", {"normalize": "min_max"}),
        ("weighted", {"normalize": "z_score"}),
        ("weighted", {"normalize": "none"}),
    ],
)
def test_equality_with_brute_force(seed, method, settings):
    """Runs of different lengths, some empty, with negative and equal scores."""
    random = np.random.default_rng(seed)
    ids = [f"d{n}" for n in range(30)]
    lists = []
    for _ in range(random.integers(2, 5)):
        docs = [ids[at] for at in random.permutation(30)[: random.integers(0, 20)]]
        lists.append((docs, random.integers(-4, 4, len(docs)).astype(np.float32)))
    if method == "weighted":
        settings = {**settings, "weights": random.uniform(0, 1, len(lists)).tolist()}
    expected = by_hand(lists, method, **settings)
    random_hits = fused(lists, method, **settings)
    assert random_hits == pytest.approx(expected, rel=1e-12, abs=1e-12)
    pooled = pool_lists(lists)
    docs, scores = select_top(pooled.docs, fusion[method](pooled, FuseParams(**settings)), 7)
    ranked = sorted(expected, key=lambda doc: (-np.float32(random_hits[doc]), doc))
    assert docs == ranked[:7]
    assert scores.tolist() == [np.float32(random_hits[doc]) for doc in docs]


def test_the_grid_of_weights_begins_with_the_most_even():
    pairs = [
        settings["weights"] for settings in fusion_grid["weighted"](2, TuneFusionParams(step=0.25))
    ]
    assert pairs == [(0.5, 0.5), (0.75, 0.25), (0.25, 0.75), (1, 0), (0, 1)]
    triples = [
        settings["weights"] for settings in fusion_grid["weighted"](3, TuneFusionParams(step=0.1))
    ]
    assert len(set(triples)) == 66  # 12 choose 2
    assert triples[0] == (0.4, 0.3, 0.3)
    assert {(1, 0, 0), (0, 1, 0), (0, 0, 1)} == set(triples[-3:])
    assert all(math.isclose(sum(weights), 1) for weights in triples)


def test_the_constants_are_tried_as_they_are_told():
    assert fusion_grid["rrf"](4, TuneFusionParams(k=[60.0, 10.0])) == [{"k": 60.0}, {"k": 10.0}]
