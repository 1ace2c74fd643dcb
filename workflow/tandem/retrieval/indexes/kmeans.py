"""A seeded sample of passages, and spherical k-means of it, the same to the last bit for any number of threads.

Lloyd's algorithm as FAISS runs it for inner products: centroids have length 1, and one without points takes half of the
largest. FAISS's own would be tied to one thread to give the same bits; here points are assigned in pieces of a fixed
size side by side, or on GPUs.
"""

from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np

from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.indexes.threads import Nearest, Threads

Floats = np.ndarray[Any, np.dtype[np.float32]]
Labels = np.ndarray[Any, np.dtype[np.int64]]

PIECE = 4096  # passages that are assigned and added together
ITERATIONS = 10  # FAISS's number for inverted lists
EPSILON = 1 / 1024  # FAISS's: how far the halves of a split centroid are moved apart
TOGETHER = 64  # centroids whose points are added up by one thread at a time


def sample(passages: Embeddings, size: int, seed: int) -> Floats:
    """Vectors of `size` passages in the order of their rows, from every block in proportion, shape (size, dim)."""
    vectors = np.empty((size, passages.dimension), np.float32)
    for number in range(len(passages)):
        first = number * passages.size
        last = min(first + passages.size, passages.rows)
        start, stop = first * size // passages.rows, last * size // passages.rows
        drawn = np.random.default_rng([seed, number]).choice(last - first, stop - start, replace=False)
        vectors[start:stop] = passages.block(number)[np.sort(drawn)]
    return vectors


def pieces(passages: Embeddings, rows: range) -> Iterator[range]:
    """The rows in pieces of at most `PIECE` that lie in one block each."""
    for first in range(rows.start // passages.size * passages.size, rows.stop, passages.size):
        last = min(first + passages.size, rows.stop)
        for start in range(max(first, rows.start), last, PIECE):
            yield range(start, min(start + PIECE, last))


def read(passages: Embeddings, piece: range) -> Floats:
    """The vectors of a piece, shape (rows of the piece, dim)."""
    number, start = divmod(piece.start, passages.size)
    return np.ascontiguousarray(passages.block(number, slice(start, start + len(piece))), np.float32)


def centroids(vectors: Floats, count: int, seed: int, threads: Threads, gpu: str = "none") -> Floats:
    """Centroids of at least `count` vectors by the angle between them, shape (count, dim), of length 1.

    `seed` draws the vectors to start from.
    """
    centres = unit(vectors[np.sort(np.random.default_rng(seed).choice(len(vectors), count, replace=False))])
    for _ in range(ITERATIONS):
        index = faiss.IndexFlatIP(centres.shape[1])
        index.add(centres)
        labels = assign(Nearest(index, gpu), vectors, threads)
        centres = unit(_sums(vectors, labels, count, threads))
    return centres


def unit(vectors: Floats) -> Floats:
    """The vectors at length 1; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return units


def assign(nearest: Nearest, vectors: Floats, threads: Threads) -> Labels:
    """The nearest vector of an index for each vector, shape (vectors,), a piece at a time."""
    parts = (vectors[start : start + PIECE] for start in range(0, len(vectors), PIECE))
    return np.concatenate(list(threads.map(nearest, parts)))


def _sums(vectors: Floats, labels: Labels, count: int, threads: Threads) -> Floats:
    """Sum of the vectors of each label, in the order of the vectors; empty ones split the largest."""
    order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels, minlength=count)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    sums = np.zeros((count, vectors.shape[1]), np.float32)

    def add(first: int) -> None:
        own = np.arange(first, min(first + TOGETHER, count))
        own = own[sizes[own] > 0]
        if len(own):
            points = vectors[order[starts[own[0]] : ends[own[-1]]]]
            sums[own] = np.add.reduceat(points, starts[own] - starts[own[0]], axis=0)

    for _ in threads.map(add, range(0, count, TOGETHER)):
        pass
    _split(sums, sizes)
    return sums


def _split(sums: Floats, sizes: Labels) -> None:
    """Give every empty centroid half of the largest one's points, in place."""
    apart = np.where(np.arange(sums.shape[1]) % 2, -EPSILON, EPSILON).astype(np.float32)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        sums[empty], sums[largest] = sums[largest] * (1 + apart), sums[largest] * (1 - apart)
        sizes[empty] = sizes[largest] // 2
        sizes[largest] -= sizes[empty]
