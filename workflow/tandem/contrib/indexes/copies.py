"""Store equal vectors in a graph once, as one node; a search puts the passages of the others next to it.

FAISS links a node to its nearest neighbours. Hundreds of equal vectors are each other's neighbours: no link leads away
from them, and a search that reaches them ends there, with a short list or without the best passages.
"""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

from tandem.data.columns import Floats
from tandem.data.rows import Rows
from tandem.models.ragged import join_ranges, sum_lengths
from tandem.retrieval.exact import Array

_DIGEST_BYTES = 16  # two different vectors share a digest with odds of 1 to 10²⁴ among 8.8 million


def digest_rows(codes: Array) -> Array:
    """Return a digest of the bytes of each row, shape (rows, 2), uint64."""
    rows = np.ascontiguousarray(codes).view(np.uint8)
    joined = b"".join(blake2b(row, digest_size=_DIGEST_BYTES).digest() for row in rows)
    return np.frombuffer(joined, np.uint64).reshape(-1, 2)


def find_copies(parts: Iterable[Array], first: int) -> Array:
    """Return the rows that equal an earlier one, ascending, and the first row that each equals, shape (copies, 2).

    Args:
        parts: digests of consecutive rows.
        first: the number of the first row.
    """
    digests = np.concatenate([np.empty((0, 2), np.uint64), *parts])
    order = np.lexsort(digests.T)  # equal rows are consecutive, the first of them first

    in_order = digests[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (in_order[1:] != in_order[:-1]).any(axis=1)
    groups = np.cumsum(is_new) - 1
    firsts = order[is_new][groups]

    pairs = np.stack([order, firsts], axis=1)[~is_new]
    ascending = np.argsort(pairs[:, 0])
    is_short = first + len(digests) <= 1 << 32
    return (pairs[ascending] + first).astype(np.uint32 if is_short else np.int64)


class Copies:
    """Maps the nodes of an index in which equal vectors occur once; nodes are numbered in the order of their rows.

    Args:
        pairs: as `find_copies` returns them.
        ranks: ranks of all rows; copies are then in the order of their ranks, otherwise in that of their rows.
    """

    def __init__(self, pairs: Array, ranks: Array | None = None) -> None:
        self.rows, self.firsts = pairs.astype(np.int64).T
        # The number of nodes before each copy: a node's row is its own number plus the number of copies before it.
        self.nodes_before = self.rows - np.arange(len(self.rows))

        # A group is a first row with its copies: those of group i are `members[bounds[i] : bounds[i + 1]]`.
        self.groups = np.unique(self.firsts)
        members = np.concatenate([self.groups, self.rows])
        owners = np.concatenate([self.groups, self.firsts])
        within_group = members if ranks is None else ranks[members]
        order = np.lexsort((within_group, owners))  # the last key decides first
        self.members = members[order]
        _, sizes = np.unique(owners, return_counts=True)
        self.bounds = sum_lengths(sizes)

    def find_rows(self, nodes: Rows) -> Rows:
        """Return the row of each node, the first of equal vectors; -1 for -1."""
        copies_before = np.searchsorted(self.nodes_before, nodes, "right")
        return np.where(nodes < 0, -1, nodes + copies_before)

    def find_nodes(self, rows: Rows) -> Rows:
        """Return the node that represents each row."""
        nearest = np.searchsorted(self.rows, rows).clip(max=len(self.rows) - 1)
        is_copy = self.rows[nearest] == rows
        firsts = np.where(is_copy, self.firsts[nearest], rows)
        copies_before = np.searchsorted(self.rows, firsts)
        return firsts - copies_before

    def expand(self, scores: Floats, rows: Rows) -> tuple[Floats, Rows]:
        """Put the copies of each row next to it, with its score, and leave out what then exceeds the width.

        Scores and rows have the shape (queries, width), best first; a row of -1 is not a result.
        """
        width = rows.shape[1]
        groups = np.searchsorted(self.groups, rows).clip(max=len(self.groups) - 1)
        has_copies = self.groups[groups] == rows

        # The number of places that each row takes, where these begin, and how many of them are within the width.
        sizes = np.where(has_copies, np.diff(self.bounds)[groups], rows >= 0)
        begins = np.cumsum(sizes, axis=1) - sizes
        sizes = (width - begins).clip(0, sizes)
        hits = np.nonzero(sizes)  # (queries, columns) of the rows that take any place
        counts = sizes[hits]

        # For each result: its query, its column, its row if that has no copies, or its place in `members` if it has.
        queries = np.repeat(hits[0], counts)
        columns = join_ranges(begins[hits], counts)
        single_rows = np.repeat(rows[hits], counts)
        is_member = np.repeat(has_copies[hits], counts)
        places = join_ranges(self.bounds[groups[hits]], counts)
        places = np.where(is_member, places, 0)

        expanded_rows = np.full(rows.shape, -1, np.int64)
        expanded_rows[queries, columns] = np.where(is_member, self.members[places], single_rows)
        expanded_scores = np.full(rows.shape, np.finfo(np.float32).min, np.float32)
        expanded_scores[queries, columns] = np.repeat(scores[hits], counts)
        return expanded_scores, expanded_rows
