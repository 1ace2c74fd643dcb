"""What an index proposes, ranked by the exact scores of the stored vectors, ties by document id."""

from itertools import pairwise
from typing import Any

import numpy as np

from tandem.search.blocks import Embeddings
from tandem.search.exact import CHUNK, Array, Best, pack, pair_scores
from tandem.search.indexes.kmeans import Labels
from tandem.search.indexes.sample import Floats
from tandem.search.indexes.threads import Threads

Keys = np.ndarray[Any, np.dtype[np.uint64]]
TOGETHER = 2048  # pairs that a thread scores at a time


def own_keys(scores: Floats, rows: Labels, ranks: Array, temperature: float) -> Keys:
    """The index's scores as packed candidates of `Best`; 0 where nothing was found. All of shape (queries, k)."""
    told = np.where(rows < 0, np.float32(0), scores) / np.float32(temperature)
    made: Keys = np.where(rows < 0, np.uint64(0), pack(told, ranks[rows]))
    return made


def exact_keys(
    passages: Embeddings, queries: Array, rows: Labels, ranks: Array, temperature: float, threads: Threads
) -> Keys:
    """The same with exact scores; vectors are read in the order of their rows.

    Args:
        passages: the vectors the index was made from.
        queries: shape (queries, dim).
        rows: proposed rows, shape (queries, k); -1 where there is none.
        ranks: alphabetical rank of each row's id.
        temperature: scores are divided by it.
        threads: share the pairs.
    """
    flat, exact, width = rows.ravel(), queries.astype(np.float64), rows.shape[1]
    made = np.zeros(len(flat), np.uint64)
    order = np.argsort(flat, kind="stable")
    order = order[np.searchsorted(flat[order], 0) :]
    edges = np.searchsorted(flat[order], np.arange(len(passages) + 1) * passages.size).tolist()

    def score(piece: tuple[int, slice]) -> None:
        """Keys of some pairs of one block."""
        number, at = piece
        stored = passages.block(number, flat[order[at]] - number * passages.size)
        for start in range(0, len(stored), CHUNK):
            pairs = order[at][start : start + CHUNK]
            scores = pair_scores(exact[pairs // width], stored[start : start + CHUNK], temperature)
            made[pairs] = pack(scores, ranks[flat[pairs]])

    pieces = (
        (number, slice(start, min(start + TOGETHER, stop)))
        for number, (first, stop) in enumerate(pairwise(edges))
        for start in range(first, stop, TOGETHER)
    )
    for _ in threads.map(score, pieces):
        pass
    return made.reshape(rows.shape)


def ranked(keys: Keys, depth: int) -> Best:
    """The best `depth` of packed candidates, shape (queries, k)."""
    best = Best(len(keys), depth)
    best.add(slice(0, len(keys)), keys)
    return best
