"""Equal vectors stand in a graph once, as one node; a search puts the passages of the others beside it.

FAISS links a node to its nearest neighbours. Those of hundreds of equal vectors are one another: no link leads away
from them, and a search that comes upon them ends there, with a short list or without the best passages.
"""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

from tandem.data.columns import Floats
from tandem.data.rows import Rows
from tandem.models.ragged import ends, ranges
from tandem.retrieval.exact import Array

COPIES_FILE = "copies.npy"  # of an index that has copies: what `find_copies` finds
_DIGEST_BYTES = (
    16  # bytes that stand for a vector; two different ones share them with odds of 1 to 10²⁴ among 8.8 million
)


def digests(codes: Array) -> Array:
    """Return a digest of the bytes of each row, shape (rows, 2), uint64."""
    rows = np.ascontiguousarray(codes).view(np.uint8)
    joined = b"".join(blake2b(row, digest_size=_DIGEST_BYTES).digest() for row in rows)
    return np.frombuffer(joined, np.uint64).reshape(-1, 2)


def find_copies(parts: Iterable[Array], first: int) -> Array:
    """Return the rows that equal an earlier one, ascending, and the first row that each equals, shape (copies, 2).

    Args:
        parts: digests of rows that follow one another.
        first: the number of the first of them.
    """
    every = np.concatenate([np.empty((0, 2), np.uint64), *parts])
    order = np.lexsort(every.T)  # of equal rows the first comes first
    ordered = every[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    groups = np.cumsum(is_new) - 1
    pairs = np.stack([order, order[is_new][groups]], axis=1)[~is_new]
    return (pairs[np.argsort(pairs[:, 0])] + first).astype(np.uint32)


class Copies:
    """The nodes of an index whose equal vectors stand in it once; nodes are numbered in the order of their rows.

    Args:
        pairs: as of `find_copies`.
        ranks: of all rows; copies then stand in the order of their ranks, else in that of their rows.
    """

    def __init__(self, pairs: Array, ranks: Array | None = None) -> None:
        self.rows, self.firsts = pairs.astype(np.int64).T
        # How many nodes come before each copy: a node's row is its number and that of the copies before it.
        self.nodes_before = self.rows - np.arange(len(self.rows))
        self.groups = np.unique(self.firsts)
        members = np.concatenate([self.groups, self.rows])
        owners = np.concatenate([self.groups, self.firsts])
        order = np.lexsort((members if ranks is None else ranks[members], owners))
        self.members = members[order]
        self.bounds = ends(np.unique(owners, return_counts=True)[1])

    def rows_of(self, nodes: Rows) -> Rows:
        """Return the row of each node, of a vector's copies the first; -1 of -1."""
        return np.where(nodes < 0, -1, nodes + np.searchsorted(self.nodes_before, nodes, "right"))

    def nodes_of(self, rows: Rows) -> Rows:
        """Return the node that stands for each row."""
        at = np.searchsorted(self.rows, rows).clip(max=len(self.rows) - 1)
        firsts = np.where(self.rows[at] == rows, self.firsts[at], rows)
        return firsts - np.searchsorted(self.rows, firsts)

    def expand(self, scores: Floats, rows: Rows) -> tuple[Floats, Rows]:
        """Put the copies of each row beside it, with its score, and leave out what then stands beyond the width.

        Scores and rows have the shape (queries, width), best first; a row of -1 is no result.
        """
        groups = np.searchsorted(self.groups, rows).clip(max=len(self.groups) - 1)
        is_group = self.groups[groups] == rows
        sizes = np.where(is_group, np.diff(self.bounds)[groups], rows >= 0)
        places = np.cumsum(sizes, axis=1) - sizes  # where each row's copies begin
        sizes = (rows.shape[1] - places).clip(0, sizes)
        queries, hits = np.nonzero(sizes)
        counts = sizes[queries, hits]
        # Of each result: its query, its column, and the place of its row among the members of its group.
        owners, columns = np.repeat(queries, counts), ranges(places[queries, hits], counts)
        members = ranges(self.bounds[groups[queries, hits]], counts)
        own = np.repeat(rows[queries, hits], counts)
        known = np.repeat(is_group[queries, hits], counts)
        expanded = np.full(rows.shape, -1, np.int64), np.full(rows.shape, np.finfo(np.float32).min, np.float32)
        expanded[0][owners, columns] = np.where(known, self.members[np.where(known, members, 0)], own)
        expanded[1][owners, columns] = np.repeat(scores[queries, hits], counts)
        return expanded[1], expanded[0]
