"""Fusion of several runs' lists for one query: what they list side by side, normalisations, and the methods.

`@fusion(name)`: a document's fused score. `@fusion_grid(name)`: the settings that tuning tries, the preferred first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from tandem.data.columns import Floats, Floats64
from tandem.data.runs import ranked_order
from tandem.stages.retrieval import FuseParams, TuneFusionParams, fusion, fusion_grid

Setting = dict[str, float | tuple[float, ...]]  # the parameters of a method that tuning chooses


@dataclass(frozen=True)
class Pool:
    """The documents that any run lists for a query: a row per document, a column per run.

    Attributes:
        docs: document ids, ascending.
        ranks: shape (documents, runs), from 1; infinite where a run does not list the document.
        scores: shape (documents, runs); NaN where a run does not list the document, or its score means nothing.
    """

    docs: list[str]
    ranks: Floats64
    scores: Floats64


def pool(lists: Sequence[tuple[Sequence[str], Floats]], scored: Sequence[int | None] = ()) -> Pool:
    """Lay runs' lists side by side.

    `lists` are documents and scores of each run, in any order; `scored` tells down to which rank each run's scores mean
    something (None, or no entry: all).
    """
    docs = sorted({doc for listed, _ in lists for doc in listed})
    rows = {doc: row for row, doc in enumerate(docs)}
    ranks, scores = np.full((len(docs), len(lists)), np.inf), np.full((len(docs), len(lists)), np.nan)
    for column, (listed, values) in enumerate(lists):
        ranked = ranked_order(listed, values)
        at = [rows[doc] for doc, _ in ranked]
        ranks[at, column] = np.arange(1, len(at) + 1)
        deepest = scored[column] if scored else None
        scores[at[:deepest], column] = [score for _, score in ranked[:deepest]]
    return Pool(docs, ranks, scores)


def total(terms: Floats64) -> Floats64:
    """Sum over the runs, shape (documents,): smaller terms first, so that it does not depend on the runs' order.

    Documents with the same ranks or scores tie exactly, whichever run has which.
    """
    return np.asarray(np.sort(terms, axis=1).sum(axis=1))


def best(docs: Sequence[str], scores: Floats64, depth: int) -> tuple[list[str], Floats]:
    """The first `depth` of documents with ascending ids, by score as float32, ties by id: a run's order."""
    rounded = scores.astype(np.float32)
    order = np.argsort(-rounded, kind="stable")[:depth]
    return [docs[row] for row in order], rounded[order]


# Normalisations take a column of a pool, shape (documents,), NaN where the run has no score, and fill it: a document
# that the run does not list gets no more than the last one that it lists, so that being listed is never worse than not.
# A run that has nothing for the query gives 0 to all.


def is_flat(listed: Floats64) -> bool:
    """Whether scores of a run are all equal but for the steps by which a run lowers ties, or there are none."""
    if not len(listed):
        return True
    step = np.spacing(np.abs(listed).max().astype(np.float32))
    return bool(listed.max() - listed.min() < len(listed) * step)


def min_max(scores: Floats64) -> Floats64:
    """(s - min) / (max - min) over the listed documents: from 0 to 1; missing: 0.

    The normalisation of Lee (Analyses of Multiple Evidence Combination, SIGIR 1997). In a list whose scores are all
    equal, such as a list of one, each has 1: more than missing.
    """
    if is_flat(scores[~np.isnan(scores)]):
        return np.where(np.isnan(scores), 0.0, 1.0)
    low, high = np.nanmin(scores), np.nanmax(scores)
    return _filled((scores - low) / (high - low))


def z_score(scores: Floats64) -> Floats64:
    """(s - mean) / standard deviation (of the population) over the listed documents; missing: the lowest of these.

    Zero mean, unit variance: Montague and Aslam, Relevance Score Normalization for Metasearch, CIKM 2001. A list whose
    scores are all equal gives 0 to every document.
    """
    listed = scores[~np.isnan(scores)]
    if is_flat(listed):
        return np.zeros_like(scores)
    return _filled((scores - listed.mean()) / listed.std())


def _filled(scores: Floats64) -> Floats64:
    """Scores as they are; missing: the lowest of these, 0 where all are missing."""
    lowest = np.nanmin(scores) if not np.isnan(scores).all() else 0.0
    return np.where(np.isnan(scores), lowest, scores)


NORMALIZATIONS: dict[str, Callable[[Floats64], Floats64]] = {"min_max": min_max, "z_score": z_score, "none": _filled}


@fusion_grid("rrf")
def constants(runs: int, params: TuneFusionParams) -> list[Setting]:
    """The values of k that are tried, whatever the number of runs."""
    return [{"k": k} for k in params.k]


@fusion("rrf")
def rrf(pool: Pool, params: FuseParams) -> Floats64:
    """Reciprocal rank fusion: score(d) = Σ over the runs that list d of 1 / (k + rank(d)), ranks from 1.

    Cormack, Clarke and Büttcher, Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning Methods,
    SIGIR 2009; there k = 60. A run that does not list a document adds nothing.
    """
    assert params.k is not None
    return total(1 / (params.k + pool.ranks))


@fusion_grid("weighted")
def weightings(runs: int, params: TuneFusionParams) -> list[Setting]:
    """Weights that sum to 1, in steps of `step`: all points of a simplex grid, the most even first.

    For two runs and a step of 0.1 these are (0.5, 0.5), (0.6, 0.4), (0.4, 0.6), … (0, 1).
    """
    assert params.step is not None
    parts = round(1 / params.step)
    grid = []
    for bars in combinations(range(parts + runs - 1), runs - 1):  # stars and bars: how the parts are shared out
        edges = (-1, *bars, parts + runs - 1)
        grid.append([right - left - 1 for left, right in pairwise(edges)])
    grid.sort(key=lambda shares: (sum(share * share for share in shares), [-share for share in shares]))
    return [{"weights": tuple(share / parts for share in shares)} for shares in grid]


@fusion("weighted")
def weighted(pool: Pool, params: FuseParams) -> Floats64:
    """score(d) = Σ over the runs of w · s(d), with each run's scores s normalised per query.

    The linear combination of Fox and Shaw's CombSUM (TREC-2, 1993) with a weight per run, as Vogt and Cottrell (Fusion
    via a Linear Combination of Scores, Information Retrieval 1999) study it.
    """
    assert params.weights is not None
    normalize = NORMALIZATIONS[params.normalize]
    columns = [weight * normalize(scores) for weight, scores in zip(params.weights, pool.scores.T, strict=True)]
    return total(np.stack(columns, axis=1))
