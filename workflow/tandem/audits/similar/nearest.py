"""The training queries nearest to each other query, whatever measures the nearness, in bounded memory."""

from typing import Any, Protocol

import numpy as np

from tandem.cluster.progress import Progress

Array = np.ndarray[Any, np.dtype[Any]]

# Scores are computed in blocks of so many training queries by so many others: 32 MiB of float64.
TRAIN, OTHERS = 16384, 256
PAIRS = 4096  # pairs scored at once


class Proposer(Protocol):
    """A similarity in [0, 1] of training queries and others, both by position.

    Attributes:
        name: what the similarity is, for people.
    """

    name: str

    def block(self, others: slice, train: slice, depth: int, floors: Array) -> Array:
        """Similarities, shape (others, train), float32.

        Exact for the best `depth` of each row that reach the row's floor; anything else may be -inf.
        """

    def pairs(self, others: Array, train: Array) -> Array:
        """Similarities of pairs, shape (pairs,), float32: a function of the pair alone."""


def reaching(block: Array, depth: int, floors: Array, margin: float = 0.0) -> tuple[Array, Array]:
    """Where a block holds what may be among its rows' best `depth`, by row and then column.

    Args:
        block: scores, shape (rows, columns).
        depth: how many of each row matter; all that equal the last of them are kept.
        floors: scores that a row's must exceed, as they must 0; shape (rows,).
        margin: by how much scores may be too low.
    """
    wanted = block > (np.maximum(floors, 0) - margin)[:, None]
    if np.count_nonzero(wanted) > 2 * depth * len(block):  # only the first blocks: a partition is slow
        width = min(depth, block.shape[1])
        cut = np.partition(block, block.shape[1] - width, axis=1)[:, -width]
        wanted &= block >= (cut - margin)[:, None]
    rows, columns = np.nonzero(wanted)
    return rows, columns


class Best:
    """The best `depth` training queries of each other query so far, of equal ones the first, none of similarity 0."""

    def __init__(self, others: int, depth: int) -> None:
        self.depth = depth
        self.scores = np.full((others, depth), -np.inf, np.float32)
        self.rows = np.full((others, depth), -1, np.int64)

    def add(self, at: slice, first: int, block: Array) -> None:
        """Merge a block of scores, shape (others of `at`, train), whose columns begin at the row `first`.

        Blocks come by ascending rows, so that a later equal never takes an earlier one's place.
        """
        other, column = reaching(block, self.depth, self.scores[at, -1])
        if not len(other):
            return
        counts = np.bincount(other, minlength=len(block))
        place = np.arange(len(other)) - np.repeat(np.cumsum(counts) - counts, counts)
        scores = np.full((len(block), int(counts.max())), -np.inf, np.float32)
        rows = np.full(scores.shape, -1, np.int64)
        scores[other, place], rows[other, place] = block[other, column], first + column
        both, rows = np.hstack([self.scores[at], scores]), np.hstack([self.rows[at], rows])
        order = np.argsort(-both, axis=1, kind="stable")[:, : self.depth]
        self.scores[at] = np.take_along_axis(both, order, axis=1)
        self.rows[at] = np.take_along_axis(rows, order, axis=1)


def nearest(proposer: Proposer, others: int, train: int, depth: int, label: str) -> tuple[Array, Array]:
    """The `depth` training queries most similar to each other query, those of similarity 0 left out.

    Returns:
        Positions of the other and of the training query, shape (pairs,), by the first and then the best first.
    """
    best = Best(others, depth)
    blocks = [slice(at, min(at + OTHERS, others)) for at in range(0, others, OTHERS)]
    with Progress(label, others * train, "pairs") as progress:
        for first in range(0, train, TRAIN):
            columns = slice(first, min(first + TRAIN, train))
            for at in blocks:
                best.add(at, first, proposer.block(at, columns, depth, best.scores[at, -1]))
                progress.add((at.stop - at.start) * (columns.stop - first))
    other, place = np.nonzero(best.scores > 0)
    return other.astype(np.int64), best.rows[other, place]


def in_parts(proposer: Proposer, others: Array, train: Array) -> Array:
    """`proposer.pairs` of any number of pairs."""
    parts = [proposer.pairs(others[i : i + PAIRS], train[i : i + PAIRS]) for i in range(0, len(others), PAIRS)]
    return np.concatenate([np.empty(0, np.float32), *parts])
