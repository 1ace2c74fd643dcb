"""K-means by FAISS, the same bits whatever the number of threads or GPUs."""

from contextlib import nullcontext
from threading import Lock
from typing import Any

import faiss
import numpy as np

from tandem.data.columns import Floats
from tandem.data.rows import Rows
from tandem.extras.faiss_gpus import NONE, on_gpus
from tandem.retrieval.faiss_search import Threads

VECTORS_PER_PIECE = 4096  # vectors that are assigned together
ITERATIONS = 10  # FAISS's number for inverted lists
_SPLIT_DISTANCE = 1 / 1024  # FAISS's: how far the halves of a split centroid are moved apart
_CENTROIDS_PER_TASK = 64  # centroids whose points are added up by one thread at a time


class Nearest:
    """Finds the nearest vector of a CPU's index, from any number of threads: FAISS's GPUs serve one call at a time."""

    def __init__(self, index: Any, mode: str) -> None:
        self.index = on_gpus(index, mode)
        self.turn = nullcontext() if mode == NONE else Lock()

    def __call__(self, vectors: Floats) -> Rows:
        """Return the row of the nearest vector for each, shape (vectors,)."""
        with self.turn:
            return np.ascontiguousarray(self.index.search(vectors, 1)[1][:, 0])


def find_centroids(
    vectors: Floats, count: int, seed: int, threads: Threads, gpu: str = NONE
) -> Floats:
    """Return `count` centroids of at least as many vectors, clustered by angle, shape (count, dim), of length 1.

    Lloyd's algorithm as FAISS runs it for inner products; `seed` draws the vectors to start from.
    """
    centres = _normalise(
        vectors[np.sort(np.random.default_rng(seed).choice(len(vectors), count, replace=False))]
    )
    for _ in range(ITERATIONS):
        index = faiss.IndexFlatIP(centres.shape[1])
        index.add(centres)
        labels = assign(Nearest(index, gpu), vectors, threads)
        centres = _normalise(_sum_by_label(vectors, labels, count, threads))
    return centres


def _normalise(vectors: Floats) -> Floats:
    """Return the vectors scaled to length 1; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))


def assign(nearest: Nearest, vectors: Floats, threads: Threads) -> Rows:
    """Return the nearest vector of an index for each vector, shape (vectors,), a piece at a time."""
    parts = (
        vectors[start : start + VECTORS_PER_PIECE]
        for start in range(0, len(vectors), VECTORS_PER_PIECE)
    )
    return np.concatenate(list(threads.map(nearest, parts)))


def _sum_by_label(vectors: Floats, labels: Rows, count: int, threads: Threads) -> Floats:
    """Sum the vectors of each label, in the order of the vectors; the largest cluster is split for empty ones."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=count)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    sums = np.zeros((count, vectors.shape[1]), np.float32)

    def add(first: int) -> None:
        own = np.arange(first, min(first + _CENTROIDS_PER_TASK, count))
        own = own[sizes[own] > 0]
        if len(own):
            points = vectors[order[starts[own[0]] : ends[own[-1]]]]
            sums[own] = np.add.reduceat(points, starts[own] - starts[own[0]], axis=0)

    list(threads.map(add, range(0, count, _CENTROIDS_PER_TASK)))
    _split(sums, sizes)
    return sums


def _split(sums: Floats, sizes: Rows) -> None:
    """Give every empty centroid half of the largest one's points, in place."""
    apart = np.where(np.arange(sums.shape[1]) % 2, -_SPLIT_DISTANCE, _SPLIT_DISTANCE).astype(
        np.float32
    )
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        sums[empty] = sums[largest] * (1 + apart)
        sums[largest] = sums[largest] * (1 - apart)
        sizes[empty] = sizes[largest] // 2
        sizes[largest] -= sizes[empty]
