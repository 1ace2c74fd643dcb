"""Exact search: score pairs, order them, and keep each query's best passages.

Engines (`faiss_search.py`, and those of packages) only propose passages: all that may be among the best within the
engine's rounding error. The score that counts depends only on the pair: float64 products, summed in one fixed order,
rounded to float32.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Passages requested of an engine beyond the depth; more are requested if (near-)ties reach beyond them.
EXTRA_PROPOSALS = 32
# Bytes of vectors that are searched at once next to an index; fewer would mean more searches, and each costs time.
STRETCH_BYTES = 2**28
PAIRS_PER_CHUNK = 128  # pairs whose vectors fit into the processor's cache
FLOAT32_ROUNDING = 2.0**-24  # unit round-off of float32
FLOAT64_ROUNDING = 2.0**-53  # unit round-off of float64
# Added to the number of terms of a sum, to cover the rounding of norms, of scores and of the bounds themselves.
SLACK_TERMS = 8

# A packed pair has the score's bits in its high half and the rank's complement in its low half.
_HALF_BITS = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_SIGN_BIT = np.uint32(1 << 31)


class SearchEngine(NamedTuple):
    """An engine of exact search: a function with the arguments and the result of `search_by_faiss`.

    Attributes:
        least_memory: bytes that the function may use, at least, if no setting limits its memory.
    """

    search: Callable[..., Array]
    least_memory: int = 0


def score_vector_pairs(queries: Array, passages: Array, temperature: float) -> Array:
    """Return s(q, p) = q · p / temperature, float32, shape (pairs,), of fp16 or float32 vectors, both (pairs, dim)."""
    products = np.multiply(queries, passages, dtype=np.float64)
    sums = products.sum(axis=1)
    return np.asarray((sums / temperature).astype(np.float32))


def round_and_flag(sums: Array, width: Any, temperature: float) -> tuple[Array, Array]:
    """Round float64 sums, added in any order, to float32 scores; flag those that may differ in the fixed order.

    Products of stored values are exact in float64, and a sum of d of them is off by at most d round-offs of
    Σ|qᵢpᵢ| ≤ |q||p| in whatever order (Higham 2002, Eq. 4.4): two orders differ by less than `bound_difference`. If
    both ends of that interval round to the same float32, so does the sum in the fixed order.

    Args:
        sums: shape (pairs,).
        width: half the interval around each sum, same shape.
    Returns:
        Scores and flags, same shape.
    """
    low = ((sums - width) / temperature).astype(np.float32)
    high = ((sums + width) / temperature).astype(np.float32)
    return low, low != high


def bound_difference(dimension: int, lengths: Any) -> Any:
    """Return twice the largest difference between two float64 sums of a pair's products, added in different orders.

    Args:
        lengths: |q||p|, or an upper bound.
    """
    return 4 * (dimension + SLACK_TERMS) * FLOAT64_ROUNDING * lengths


def score_rows(
    query: Array, vectors: Array, rows: Array, longest: float, temperature: float
) -> Array:
    """Return the scores of a query with some passages, shape (rows,): the same as `score_vector_pairs`, but faster.

    `score_vector_pairs` itself is called only where rounding is close.

    Args:
        query: shape (dim,).
        vectors: all passages, shape (passages, dim).
        rows: the passages to score.
        longest: no vector of a passage is longer.
    """
    wide_query = query.astype(np.float64)
    sums = np.empty(len(rows))
    for start in range(0, len(rows), PAIRS_PER_CHUNK):
        chunk = slice(start, start + PAIRS_PER_CHUNK)
        passages = vectors.take(rows[chunk], axis=0).astype(np.float64)
        sums[chunk] = np.vecdot(passages, wide_query)

    lengths = float(np.linalg.norm(wide_query)) * longest
    width = bound_difference(len(wide_query), lengths)
    scores, is_close = round_and_flag(sums, width, temperature)

    chunks = is_close.sum() // PAIRS_PER_CHUNK + 1
    for pairs in np.array_split(np.flatnonzero(is_close), chunks):
        passages = vectors[rows[pairs]].astype(np.float64)
        queries = np.broadcast_to(wide_query, passages.shape)
        scores[pairs] = score_vector_pairs(queries, passages, temperature)
    return scores


def pack_keys(scores: Array, ranks: Array) -> Array:
    """Pack each pair (score, alphabetical rank of its document) into a uint64; these sort by score, then falling rank.

    The high half has the score's float32 bits, changed so that they sort as the scores do. No pair packs to 0.

    >>> pack_keys(np.array([-1.0, 0.5, 0.5]), np.array([0, 7, 3])).argsort().tolist()
    [0, 1, 2]
    """
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.uint32)  # + 0 turns -0 into 0
    is_negative = bits >> 31
    # As whole numbers, the bits of negative floats sort backwards and above those of positive ones.
    ordered = np.where(is_negative, ~bits, bits | _SIGN_BIT).astype(np.uint64)
    return (ordered << _HALF_BITS) | (_LOW_HALF - ranks.astype(np.uint64))


def unpack_keys(keys: Array) -> tuple[Array, Array]:
    """Return the scores (float32) and ranks (int64) of packed pairs.

    >>> scores, ranks = unpack_keys(pack_keys(np.array([-1.5]), np.array([7])))
    >>> scores.tolist(), ranks.tolist()
    ([-1.5], [7])
    """
    ordered = (keys >> _HALF_BITS).astype(np.uint32)
    is_positive = ordered >> 31
    bits = np.where(is_positive, ordered ^ _SIGN_BIT, ~ordered).astype(np.uint32)
    ranks = _LOW_HALF - (keys & _LOW_HALF)
    return bits.view(np.float32), ranks.astype(np.int64)


class BestPassages:
    """Keep the best `depth` passages of each query, in eight bytes a passage."""

    def __init__(self, queries: int, depth: int) -> None:
        self.depth = depth
        self.keys = np.zeros((queries, depth), np.uint64)  # packed; 0 where no passage is yet

    def find_floors(self, rows: slice) -> Array:
        """Return for each query the least score that a passage needs, float64; -inf until it has `depth` passages."""
        lowest = self.keys[rows].min(axis=1)
        is_full = lowest > 0
        # For a query that is not full, an arbitrary packed pair is unpacked; its score is not used.
        scores, _ = unpack_keys(np.maximum(lowest, np.uint64(1 << 32)))
        return np.where(is_full, scores, -np.inf)

    def add(self, rows: slice, keys: Array) -> None:
        """Merge packed candidates of the queries at `rows`, shape (queries, any), into the best; 0 is no candidate."""
        merged = np.concatenate([self.keys[rows], keys], axis=1)
        surplus = merged.shape[1] - self.depth
        self.keys[rows] = np.partition(merged, surplus, axis=1)[:, -self.depth :]

    def rank(self, query: int) -> tuple[Array, Array]:
        """Return the ranks and scores of a query's passages, best first."""
        best_first = np.sort(self.keys[query])[::-1]
        scores, ranks = unpack_keys(best_first[best_first > 0])
        return ranks, scores

    def list_ranks(self) -> list[Array]:
        """Return the ranks of each query's passages, best first."""
        return [self.rank(query)[0] for query in range(len(self.keys))]
