"""Passages by rows: a seeded sample to learn from, and pieces of a fixed size to fill an index with."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tandem.search.blocks import Embeddings

Floats = np.ndarray[Any, np.dtype[np.float32]]
PIECE = 4096  # passages that are assigned and added together


def sample(passages: Embeddings, size: int, seed: int) -> Floats:
    """Vectors of `size` passages, from every block in proportion, drawn by the seed and the block's number.

    Returns:
        Shape (size, dim), in the order of their rows.
    """
    made = np.empty((size, passages.dimension), np.float32)
    for number in range(len(passages)):
        first = number * passages.size
        last = min(first + passages.size, passages.rows)
        start, stop = first * size // passages.rows, last * size // passages.rows
        drawn = np.random.default_rng([seed, number]).choice(last - first, stop - start, replace=False)
        made[start:stop] = passages.block(number)[np.sort(drawn)]
    return made


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
