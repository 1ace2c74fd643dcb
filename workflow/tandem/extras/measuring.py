"""How good and how fast a search is: recall against exact search, milliseconds per single query, queries per second."""

import statistics
import timeit
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tandem.retrieval.exact import Array, BestPassages

_QUERIES_TIMED_ALONE = 100  # queries that are timed one at a time


def compute_recall(retrieved: Sequence[Array], relevant: Sequence[Array], k: int) -> float:
    """Return the mean of `list_shares`.

    >>> compute_recall([np.array([4, 7])], [np.array([7, 9])], 2)
    0.5
    """
    return float(np.mean(list_shares(retrieved, relevant, k)))


def list_shares(retrieved: Sequence[Array], relevant: Sequence[Array], k: int) -> list[float]:
    """Return each query's share of the exact top k among the first k retrieved; queries without one are left out."""
    shares = []
    for ours, best in zip(retrieved, relevant, strict=True):
        if len(best):
            shared = np.intersect1d(ours[:k], best[:k])
            shares.append(len(shared) / len(best[:k]))
    return shares


def list_shares_by_score(retrieved: BestPassages, exact: BestPassages, k: int) -> list[float]:
    """Return each query's share of the exact top k among the first k retrieved; equally good passages count alike.

    Both have exact scores: where copies tie at the cut, an index may propose others than those whose ids come first.
    """
    shares = []
    for query in range(len(exact.keys)):
        best = exact.rank(query)[1][:k]
        ours = retrieved.rank(query)[1][:k]
        if len(best):
            good_enough = ours >= best[-1]
            shares.append(good_enough.sum() / len(best))
    return shares


def measure_search(
    retrieved: Sequence[Array],
    exact: Sequence[Array],
    ks: Sequence[int],
    search_alone: Callable[[int], object],
    search_together: Callable[[], object],
    repeats: int,
) -> dict[str, float]:
    """Return recall at each k against the exact top, milliseconds per single query, and queries per second together.

    Args:
        retrieved, exact: each query's passages, best first.
        search_alone, search_together: search for one query, by its number, and for all.
        repeats: how often each call is timed.
    """
    measures = {f"recall@{k}": round(compute_recall(retrieved, exact, k), 4) for k in ks}
    return measures | measure_times(len(exact), search_alone, search_together, repeats)


def measure_times(
    queries: int,
    search_alone: Callable[[int], object],
    search_together: Callable[[], object],
    repeats: int,
) -> dict[str, float]:
    """Return milliseconds per single query, and queries per second together; see `measure_search`."""
    timed = range(min(_QUERIES_TIMED_ALONE, queries))
    seconds_alone = [time_median(partial(search_alone, query), repeats) for query in timed]
    seconds_together = time_median(search_together, repeats)
    return {
        "ms_per_query": round(1000 * statistics.median(seconds_alone), 4),
        "queries_per_second": round(queries / seconds_together, 1),
    }


def time_median(work: Callable[[], object], repeats: int) -> float:
    """Return the median wall time of some calls, in seconds, after a call that warms up."""
    times = timeit.repeat(work, number=1, repeat=1 + repeats)
    return statistics.median(times[1:])
