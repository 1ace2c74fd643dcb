"""Exact top-k by inner product, the same to the last bit however many threads, queries or blocks there are.

FAISS computes in float32 and its last bits depend on threads, on the other queries and on where a passage stands, so
that even copies of one passage may differ. It therefore only proposes: everything within its rounding error of the
cut. The score that counts is the product of the two fp16 vectors summed in float64 in one fixed order, rounded to
float32: a function of the pair alone.
"""

from typing import Any

import faiss
import numpy as np

from tandem.search.blocks import Half

Array = np.ndarray[Any, np.dtype[Any]]

# Asked of FAISS beyond the depth; more is asked where ties or near-ties go on further than this.
EXTRA = 32
CHUNK = 512  # pairs whose vectors stay in the processor's cache
ROUNDING = 2.0**-24  # float32's unit round-off


def pair_scores(queries: Array, passages: Array, temperature: float) -> Array:
    """s(q, p) = q · p / temperature of aligned vectors.

    Args:
        queries: fp16 values, shape (pairs, dim).
        passages: fp16 values, shape (pairs, dim).
        temperature: positive.
    Returns:
        Shape (pairs,), float32.
    """
    products = np.multiply(queries, passages, dtype=np.float64)
    scores: Array = (products.sum(axis=1) / temperature).astype(np.float32)
    return scores


def pack(scores: Array, ranks: Array) -> Array:
    """One uint64 per (score, alphabetical rank of the document) that sorts ascending by score, then descending by rank.

    The score's float32 bits, reordered to sort as numbers, are the high half. No pair packs to 0.
    """
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.uint32)  # + 0 turns -0 into 0
    ordered = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31)).astype(np.uint64)
    return (ordered << np.uint64(32)) | (np.uint64(0xFFFFFFFF) - ranks.astype(np.uint64))


def unpack(keys: Array) -> tuple[Array, Array]:
    """Scores (float32) and ranks (int64) of packed pairs."""
    ordered = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(ordered >> 31, ordered ^ np.uint32(1 << 31), ~ordered).astype(np.uint32)
    return bits.view(np.float32), (np.uint64(0xFFFFFFFF) - (keys & np.uint64(0xFFFFFFFF))).astype(np.int64)


class Best:
    """The best `depth` passages of each query so far: eight bytes each, whatever the size of the corpus."""

    def __init__(self, queries: int, depth: int) -> None:
        self.depth = depth
        self.keys = np.zeros((queries, depth), np.uint64)

    def floors(self, at: slice) -> Array:
        """The score a passage must reach to matter, per query: -inf until there are `depth`; float64."""
        lowest = self.keys[at].min(axis=1)
        return np.where(lowest > 0, unpack(np.maximum(lowest, np.uint64(1 << 32)))[0], -np.inf)

    def add(self, at: slice, keys: Array) -> None:
        """Merge packed candidates, shape (queries of `at`, any), 0 where there is none."""
        both = np.concatenate([self.keys[at], keys], axis=1)
        self.keys[at] = np.partition(both, both.shape[1] - self.depth, axis=1)[:, -self.depth :]

    def ranked(self, query: int) -> tuple[Array, Array]:
        """Ranks and scores of a query's passages, best first."""
        keys = np.sort(self.keys[query])[::-1]
        scores, ranks = unpack(keys[keys > 0])
        return ranks, scores


class BlockSearch:
    """Search in one block of passages.

    Args:
        vectors: fp16, shape (passages, dim).
        ranks: alphabetical rank of each passage's id, shape (passages,).
        temperature: scores are divided by it.
    """

    def __init__(self, vectors: Half, ranks: Array, temperature: float) -> None:
        self.vectors, self.ranks, self.temperature = vectors.astype(np.float64), ranks, temperature
        self.longest = float(np.linalg.norm(self.vectors, axis=1).max())
        self.index: Any = faiss.IndexFlatIP(vectors.shape[1])
        self.index.add(vectors.astype(np.float32))

    def candidates(self, queries: Half, depth: int, floors: Array) -> Array:
        """Packed candidates that hold every one of the block's best `depth` passages that reach the floor.

        Args:
            queries: fp16, shape (queries, dim).
            depth: how many of the best must be among them.
            floors: lowest score of interest per query.
        Returns:
            Shape (queries, any), 0 where there is none.
        """
        labels, wanted = self._propose(queries, depth, floors * self.temperature)
        keys, exact = np.zeros(labels.shape, np.uint64), queries.astype(np.float64)
        query, column = np.nonzero(wanted)
        for start in range(0, len(query), CHUNK):
            q, c = query[start : start + CHUNK], column[start : start + CHUNK]
            rows = labels[q, c]
            keys[q, c] = pack(pair_scores(exact[q], self.vectors[rows], self.temperature), self.ranks[rows])
        return keys

    def _propose(self, queries: Half, depth: int, floors: Array) -> tuple[Array, Array]:
        """Rows by FAISS and which of them may be in the exact top `depth`; both (queries, any).

        A sum of d products is off by at most d unit round-offs of |q||p|, both for the passage and for the one at
        the cut; a few more cover the rounding of the scores themselves.
        """
        asked = queries.astype(np.float32)
        count = len(self.vectors)
        error = (asked.shape[1] + 8) * ROUNDING * np.linalg.norm(asked.astype(np.float64), axis=1) * self.longest
        k = min(count, depth + EXTRA)
        while True:
            scores, labels = self.index.search(asked, k)
            cut = np.maximum(scores[:, min(depth, count) - 1], floors) - 2 * error
            wanted = scores >= cut[:, None]
            if k == count or not wanted[:, -1].any():
                width = int(wanted.sum(axis=1).max(initial=0))
                return labels[:, :width], wanted[:, :width]
            k = min(count, 2 * k)
