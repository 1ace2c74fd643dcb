"""What several runs found for one query, side by side."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from tandem.data.runs import Floats, ranked_order, scored_depth
from tandem.fusion.aligned import aligned
from tandem.store.artifact import Artifact

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
