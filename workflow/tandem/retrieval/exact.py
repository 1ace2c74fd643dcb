"""Exact search: the score of a pair, the order of pairs, and each query's best passages so far.

Engines (`faiss_search.py`, `torch_search.py`) only propose what is within their rounding error of the cut. The score
that counts is a function of the pair alone: float64 products summed in one fixed order, rounded to float32.
"""

import statistics
import timeit
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

EXTRA_PROPOSALS = 32  # passages requested of an engine beyond the depth; more are where ties or near-ties go on further
STRETCH_BYTES = (
    1 << 28
)  # bytes of vectors that are searched at once beside an index: each search costs every query some time
_QUERIES_TIMED_ALONE = 100  # queries that are searched for one at a time, to take the time
PAIRS_PER_CHUNK = 128  # pairs whose vectors stay in the processor's cache
ROUNDING, FINE = 2.0**-24, 2.0**-53  # unit round-offs of float32 and float64
SLACK_TERMS = 8  # terms added to a sum's length: the rounding of norms, of scores and of the bounds themselves


def score_pairs(queries: Array, passages: Array, temperature: float) -> Array:
    """s(q, p) = q · p / temperature of fp16 or float32 vectors, both (pairs, dim); float32, shape (pairs,)."""
    products = np.multiply(queries, passages, dtype=np.float64)
    return np.asarray((products.sum(axis=1) / temperature).astype(np.float32))


def round_and_flag(sums: Array, width: Any, temperature: float) -> tuple[Array, Array]:
    """float32 scores from float64 sums in any order, and which of them the fixed order might round otherwise.

    Products of stored values are exact in float64, and a sum of d of them is off by at most d round-offs of
    Σ|qᵢpᵢ| ≤ |q||p| in whatever order (Higham 2002, Eq. 4.4): two orders differ by less than `bound_difference`. Where
    both ends of that interval round to one float32, so does the sum in the fixed order. All of shape (pairs,).
    """
    low, high = (((sums + end) / temperature).astype(np.float32) for end in (-width, width))
    return low, low != high


def bound_difference(dimension: int, lengths: Any) -> Any:
    """Twice what two float64 sums of a pair's products may differ by; `lengths` is |q||p|, or an upper bound."""
    return 4 * (dimension + SLACK_TERMS) * FINE * lengths


def score_rows(query: Array, vectors: Array, rows: Array, longest: float, temperature: float) -> Array:
    """Scores of a query (dim,) with rows of vectors (passages, dim), whose lengths `longest` bounds; shape (rows,).

    They equal those of `score_pairs`, which is called only where rounding is close.
    """
    exact, sums = query.astype(np.float64), np.empty(len(rows))
    for at in (slice(start, start + PAIRS_PER_CHUNK) for start in range(0, len(rows), PAIRS_PER_CHUNK)):
        sums[at] = np.vecdot(vectors.take(rows[at], axis=0).astype(np.float64), exact)
    width = bound_difference(len(exact), float(np.linalg.norm(exact)) * longest)
    scores, close = round_and_flag(sums, width, temperature)
    for pairs in np.array_split(np.flatnonzero(close), close.sum() // PAIRS_PER_CHUNK + 1):
        left = vectors[rows[pairs]].astype(np.float64)
        scores[pairs] = score_pairs(np.broadcast_to(exact, left.shape), left, temperature)
    return scores


def pack_keys(scores: Array, ranks: Array) -> Array:
    """One uint64 per (score, alphabetical rank of the document) that sorts ascending by score, then descending by rank.

    The score's float32 bits, reordered to sort as numbers, are the high half. No pair packs to 0.
    """
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.uint32)  # + 0 turns -0 into 0
    ordered = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31)).astype(np.uint64)
    return (ordered << np.uint64(32)) | (np.uint64(0xFFFFFFFF) - ranks.astype(np.uint64))


def unpack_keys(keys: Array) -> tuple[Array, Array]:
    """Scores (float32) and ranks (int64) of packed pairs."""
    ordered = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(ordered >> 31, ordered ^ np.uint32(1 << 31), ~ordered).astype(np.uint32)
    return bits.view(np.float32), (np.uint64(0xFFFFFFFF) - (keys & np.uint64(0xFFFFFFFF))).astype(np.int64)


class BestPassages:
    """The best `depth` passages of each query so far: eight bytes each, whatever the size of the corpus."""

    def __init__(self, queries: int, depth: int) -> None:
        self.depth = depth
        self.keys = np.zeros((queries, depth), np.uint64)

    def floors(self, at: slice) -> Array:
        """The score a passage must reach to matter, per query, float64: -inf while there are fewer than `depth`."""
        lowest = self.keys[at].min(axis=1)
        return np.where(lowest > 0, unpack_keys(np.maximum(lowest, np.uint64(1 << 32)))[0], -np.inf)

    def add(self, at: slice, keys: Array) -> None:
        """Merge packed candidates, shape (queries of `at`, any), 0 for none."""
        both = np.concatenate([self.keys[at], keys], axis=1)
        self.keys[at] = np.partition(both, both.shape[1] - self.depth, axis=1)[:, -self.depth :]

    def ranked(self, query: int) -> tuple[Array, Array]:
        """Ranks and scores of a query's passages, best first."""
        keys = np.sort(self.keys[query])[::-1]
        scores, ranks = unpack_keys(keys[keys > 0])
        return ranks, scores

    def ranks(self) -> list[Array]:
        """Ranks of each query's passages, best first."""
        return [self.ranked(query)[0] for query in range(len(self.keys))]


def space_evenly(rows: int, most: int) -> Array:
    """`most` of so many rows, or all, evenly spaced."""
    count = min(rows, most)
    return np.arange(count) * rows // count


def compute_recall(retrieved: Sequence[Array], relevant: Sequence[Array], k: int) -> float:
    """Mean share of the exact top k that is among the first k retrieved; queries without any do not count."""
    pairs = [(ours[:k], best[:k]) for ours, best in zip(retrieved, relevant, strict=True) if len(best)]
    return float(np.mean([len(np.intersect1d(ours, best)) / len(best) for ours, best in pairs]))


def compute_recall_by_score(retrieved: BestPassages, exact: BestPassages, k: int) -> float:
    """Mean share of the exact top k that is among the first k retrieved, where any of equally good passages counts.

    Both have exact scores: of copies at the cut an index may have proposed others than those whose ids come first.
    """
    shares = []
    for query in range(len(exact.keys)):
        ours, best = (side.ranked(query)[1][:k] for side in (retrieved, exact))
        if len(best):
            shares.append((ours >= best[-1]).sum() / len(best))
    return float(np.mean(shares))


def measure_search(
    retrieved: Sequence[Array],
    exact: Sequence[Array],
    ks: Sequence[int],
    alone: Callable[[int], object],
    together: Callable[[], object],
    repeats: int,
) -> dict[str, float]:
    """Recall at each k against the exact top, milliseconds of a query alone, and queries a second together.

    Args:
        retrieved, exact: each query's passages, best first.
        alone, together: search for one query, by its number, and for all.
        repeats: how often each call is timed.
    """
    single = [time_median(partial(alone, query), repeats) for query in range(min(_QUERIES_TIMED_ALONE, len(exact)))]
    return {
        **{f"recall@{k}": round(compute_recall(retrieved, exact, k), 4) for k in ks},
        "ms_per_query": round(1000 * statistics.median(single), 4),
        "queries_per_second": round(len(exact) / time_median(together, repeats), 1),
    }


def time_median(work: Callable[[], object], repeats: int) -> float:
    """Median wall time of some calls after one that warms up."""
    return statistics.median(timeit.repeat(work, number=1, repeat=1 + repeats)[1:])
