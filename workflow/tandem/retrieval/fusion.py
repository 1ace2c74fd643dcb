"""What several runs found for one query, side by side."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import combinations, groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.artifact import Artifact
from tandem.data.runs import Floats, ranked_order, scored_depth
from tandem.retrieval.fuse import aligned

Floats64 = NDArray[np.float64]


@dataclass(frozen=True)
class Pool:
    """The documents that any run lists for a query: a row per document, a column per run.

    Attributes:
        docs: document ids, ascending.
        ranks: shape (documents, runs), from 1; infinite where a run does not list the document.
        scores: shape (documents, runs); NaN where a run does not list the document, or its score says nothing.
    """

    docs: list[str]
    ranks: Floats64
    scores: Floats64


def pool(lists: Sequence[tuple[Sequence[str], Floats]], scored: Sequence[int | None] = ()) -> Pool:
    """Lay runs' lists side by side.

    Args:
        lists: documents and scores of each run, in any order; empty where a run found nothing.
        scored: down to which rank each run's scores say something; None, or no entry: all.
    """
    docs = sorted({doc for listed, _ in lists for doc in listed})
    rows = {doc: row for row, doc in enumerate(docs)}
    ranks, scores = np.full((len(docs), len(lists)), np.inf), np.full((len(docs), len(lists)), np.nan)
    for column, (listed, given) in enumerate(lists):
        ranked = ranked_order(listed, given)
        at = [rows[doc] for doc, _ in ranked]
        ranks[at, column] = np.arange(1, len(at) + 1)
        deepest = scored[column] if scored else None
        scores[at[:deepest], column] = [score for _, score in ranked[:deepest]]
    return Pool(docs, ranks, scores)


def total(terms: Floats64) -> Floats64:
    """Sum over the runs, shape (documents,): smaller terms first, so that it does not depend on the runs' order.

    Documents that the same ranks or scores are added up for tie exactly, whichever run gave which.
    """
    summed: Floats64 = np.sort(terms, axis=1).sum(axis=1)
    return summed


def best(docs: Sequence[str], scores: Floats64, depth: int) -> tuple[list[str], Floats]:
    """The first `depth` of documents with ascending ids, by score as float32, ties by id: a run's order."""
    rounded = scores.astype(np.float32)
    order = np.argsort(-rounded, kind="stable")[:depth]
    return [docs[row] for row in order], rounded[order]


def pools(runs: Sequence[Artifact], queries: Sequence[str]) -> Iterator[tuple[str, Pool]]:
    """Each query that a run has an answer for, and its pool; two queries of each run are held at a time.

    Args:
        runs: run artifacts of one dataset and split.
        queries: the split's queries: the order in which they are fused, whatever that of the runs.
    Raises:
        UserError: a run lists a query that is not among them.
    """
    places = {query: place for place, query in enumerate(queries)}
    scored = [scored_depth(run) for run in runs]
    streams = [_numbered(number, aligned(run.path("run.trec"), places)) for number, run in enumerate(runs)]
    for place, group in groupby(merge(*streams, key=itemgetter(0)), key=itemgetter(0)):
        lists: list[tuple[Sequence[str], Floats]] = [((), np.empty(0, np.float32))] * len(runs)
        for _, number, docs, scores in group:
            lists[number] = docs, scores
        yield queries[place], pool(lists, scored)


def _numbered(
    number: int, lists: Iterable[tuple[int, list[str], Floats]]
) -> Iterator[tuple[int, int, list[str], Floats]]:
    """(place of the query, number of the run, documents, scores) of a run's lists."""
    for place, docs, scores in lists:
        yield place, number, docs, scores


def rrf(pool: Pool, settings: dict[str, Any]) -> Floats64:
    """score(d) = Σ over the runs that list d of 1 / (k + rank(d)), ranks from 1.

    Cormack, Clarke and Büttcher, Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning Methods,
    SIGIR 2009; there k = 60. A run that does not list a document adds nothing.

    Args:
        pool: what the runs found; scores are not looked at.
        settings: `k`.
    """
    return total(1 / (settings["k"] + pool.ranks))


def constants(runs: int, told: dict[str, Any]) -> list[dict[str, Any]]:
    """The values of k that are tried: those of `told["k"]`, whatever the number of runs."""
    return [{"k": k} for k in told["k"]]


def min_max(scores: Floats64) -> Floats64:
    """(s - min) / (max - min) over what the run lists: from 0 to 1; missing: 0.

    The normalisation of Lee (Analyses of Multiple Evidence Combination, SIGIR 1997). Of a list whose scores are all
    equal, a list of one among them, each has 1: to be listed is all that it says, and more than missing.
    """
    listed = scores[~np.isnan(scores)]
    if not len(listed) or listed.min() == listed.max():
        return np.where(np.isnan(scores), 0.0, 1.0)
    return _filled((scores - listed.min()) / (listed.max() - listed.min()))


def z_score(scores: Floats64) -> Floats64:
    """(s - mean) / standard deviation (of the population) over what the run lists; missing: the lowest of these.

    Zero mean, unit variance: Montague and Aslam, Relevance Score Normalization for Metasearch, CIKM 2001. A list whose
    scores are all equal gives 0 to every document.
    """
    listed = scores[~np.isnan(scores)]
    if not len(listed) or listed.min() == listed.max():
        return np.zeros_like(scores)
    return _filled((scores - listed.mean()) / listed.std())


def none(scores: Floats64) -> Floats64:
    """Scores as they are; missing: the lowest of these."""
    return _filled(scores)


def _filled(scores: Floats64) -> Floats64:
    """The lowest score where there is none; 0 where there is none at all."""
    lowest = np.nanmin(scores) if not np.isnan(scores).all() else 0.0
    return np.where(np.isnan(scores), lowest, scores)


NORMALIZATIONS: dict[str, Callable[[Floats64], Floats64]] = {"min_max": min_max, "z_score": z_score, "none": none}


def weighted(pool: Pool, settings: dict[str, Any]) -> Floats64:
    """score(d) = Σ over the runs of w · s(d), with each run's scores s normalised per query (`normalize.py`).

    The linear combination of Fox and Shaw's CombSUM (TREC-2, 1993) with a weight per run, as Vogt and Cottrell (Fusion
    via a Linear Combination of Scores, Information Retrieval 1999) study it.

    Args:
        pool: what the runs found.
        settings: `weights`, one a run; `normalize`, a name of `NORMALIZATIONS`.
    """
    normalize = NORMALIZATIONS[settings["normalize"]]
    columns = [weight * normalize(scores) for weight, scores in zip(settings["weights"], pool.scores.T, strict=True)]
    return total(np.stack(columns, axis=1))


def weightings(runs: int, told: dict[str, Any]) -> list[dict[str, Any]]:
    """Weights that sum to 1, in steps of `told["step"]`: all points of a simplex grid, the most even first.

    For two runs and a step of 0.1 these are (0.5, 0.5), (0.6, 0.4), (0.4, 0.6), … (0, 1).
    """
    parts = round(1 / told["step"])
    # Where the bars stand among stars and bars tells how the parts are shared out.
    grid = []
    for bars in combinations(range(parts + runs - 1), runs - 1):
        edges = (-1, *bars, parts + runs - 1)
        grid.append([right - left - 1 for left, right in pairwise(edges)])
    grid.sort(key=lambda shares: (sum(share * share for share in shares), [-share for share in shares]))
    return [{"weights": [share / parts for share in shares]} for shares in grid]


Settings = dict[str, Any]

# The fused score of every document of a query's pool, shape (documents,), by settings named as in the configuration.
METHODS: dict[str, Callable[[Pool, Settings], Floats64]] = {"rrf": rrf, "weighted": weighted}
# The settings tried for so many runs, the preferred first: of equally good ones the first is taken.
GRIDS: dict[str, Callable[[int, Settings], list[Settings]]] = {"rrf": constants, "weighted": weightings}
