"""A document's score from the scores of its windows.

FirstP, MaxP, SumP: Dai & Callan (2019), for re-ranking. K-MaxP-Avg: Chen et al. (ICIP at TREC 2020), as the review
tells it (§6.1.1): the average of the K best. Each method takes the windows' scores of many documents, one document
after the other and each document's windows in order, and where each document begins.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Method = Callable[[Array, Array, int], Array]


def first(scores: Array, starts: Array, k: int) -> Array:
    """FirstP: s(q, d) = s(q, w_0).

    Args:
        scores: of windows, float64, shape (windows,).
        starts: where each document's windows begin, rising, shape (documents,); each document has a window.
        k: of no meaning here.
    Returns:
        Shape (documents,), float64; so do the other methods.
    """
    return np.asarray(scores[starts])


def best(scores: Array, starts: Array, k: int) -> Array:
    """MaxP: s(q, d) = max_n s(q, w_n)."""
    return np.maximum.reduceat(scores, starts)


def total(scores: Array, starts: Array, k: int) -> Array:
    """SumP: s(q, d) = Σ_n s(q, w_n). Negative scores count as they are: each such window lowers the sum."""
    return np.add.reduceat(scores, starts)


def best_k(scores: Array, starts: Array, k: int) -> Array:
    """K-MaxP: the mean of a document's `k` best windows, of all it has if they are fewer. With k = 1 it is MaxP."""
    sizes = np.diff(starts, append=len(scores))
    order = np.lexsort((-scores, np.repeat(np.arange(len(starts)), sizes)))
    ranks = np.arange(len(scores)) - np.repeat(starts, sizes)
    sums = np.add.reduceat(np.where(ranks < k, scores[order], 0.0), starts)
    return np.asarray(sums / np.minimum(sizes, k))


METHODS: dict[str, Method] = {"first": first, "max": best, "sum": total, "kmax": best_k}


def aggregate(method: str, scores: Array, sizes: Array, k: int = 1) -> Array:
    """Documents' scores by a method's name.

    Args:
        method: key of `METHODS`.
        scores: of windows, document after document, shape (windows,).
        sizes: windows of each document, at least one, shape (documents,).
        k: of `kmax`.
    Returns:
        Shape (documents,), float64.
    """
    starts = np.cumsum(sizes) - sizes
    return METHODS[method](np.asarray(scores, np.float64), starts, k) if len(sizes) else np.empty(0)
