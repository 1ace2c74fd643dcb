"""Which passages repeat others: equal texts by their hash, similar ones by a common bucket, and the groups they form.

Arrays over all passages are few: 8 bytes for hashes, 4 for the first of each text, 28 while something is sorted.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tandem.data import tables
from tandem.data.rows import IdRows, Rows
from tandem.extras.audits.minhash import Hashes

Firsts = np.ndarray[Any, np.dtype[np.uint32]]
Similarities = np.ndarray[Any, np.dtype[np.float32]]

# A passage is compared with at most so many that follow it in a bucket. Buckets are almost always smaller; in a large
# one (thousands of passages from one template) all pairs would be quadratic, and neighbours still join the group.
WINDOW = 32
HIGH = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
EXACT = 2.0  # `Duplicates.likeness` of the same text
SCHEMA = pa.schema([
    ("group", pa.int64()), ("kind", pa.string()), ("first", pa.string()), ("second", pa.string()),
    ("similarity", pa.float32()),
])  # fmt: skip


def pack(lower: Any, higher: Any) -> Hashes:
    """Two rows below 2^32 as one 64-bit number that sorts by the lower, then the higher."""
    packed: Hashes = (np.asarray(lower).astype(np.uint64) << HIGH) | np.asarray(higher).astype(np.uint64)
    return packed


def unpack(pairs: Hashes) -> tuple[Rows, Rows]:
    """`pack` undone: the lower and the higher rows."""
    return (pairs >> HIGH).astype(np.int64), (pairs & LOW).astype(np.int64)


def first_of_equal(hashes: Hashes) -> Firsts:
    """For each passage the first row whose hash is the same; an empty passage (hash 0) is its own.

    Two different texts share a 64-bit hash with odds of about 1 to 500,000 in a corpus of 8.8 million.
    """
    order = np.argsort(hashes, kind="stable").astype(np.uint32)
    ordered = hashes[order]
    begins = np.ones(len(hashes), bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    first = np.empty(len(hashes), np.uint32)
    first[order] = order[np.maximum.accumulate(np.where(begins, np.arange(len(hashes)), 0))]
    empty = np.flatnonzero(hashes == 0)
    first[empty] = empty
    return first


def bucket_pairs(keys: Hashes, rows: Firsts) -> tuple[Hashes, int]:
    """Pairs of passages with an equal key in one band, packed, and how many of large buckets `WINDOW` left out.

    `keys` and the ascending `rows` are of the passages that count: one of each text.
    """
    order = np.argsort(keys, kind="stable")
    ordered, members = keys[order], rows[order]
    del order
    pairs = [np.empty(0, np.uint64)]
    for step in range(1, WINDOW + 1):
        same = ordered[step:] == ordered[:-step]
        if not same.any():
            break
        pairs.append(pack(members[:-step][same], members[step:][same]))
    edges = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])) if len(ordered) else [0]
    beyond = np.maximum(np.diff(edges) - WINDOW - 1, 0)
    return np.concatenate(pairs), int((beyond * (beyond + 1) // 2).sum())


@dataclass(frozen=True)
class CorpusCounts:
    """Numbers of passages, of texts that several have, of pairs of near-duplicates, and of groups of either."""

    passages: int
    empty: int
    exact_groups: int
    exact_passages: int
    near_pairs: int
    groups: int
    group_passages: int


@dataclass(frozen=True)
class Duplicates:
    """Passages are rows. Of passages with the same text the first stands for all of them in near-duplicate pairs."""

    first: Firsts  # for each passage the first one with the same text
    empty: np.ndarray[Any, np.dtype[np.bool_]]  # passages without text; they repeat nothing
    pairs: Hashes  # near-duplicates, packed, ascending
    similarity: Similarities  # of each pair

    @cached_property
    def copies(self) -> Rows:
        """Passages whose text stands earlier, ascending."""
        return np.flatnonzero(self.first != np.arange(len(self.first)))

    @cached_property
    def groups(self) -> tuple[Rows, Rows]:
        """Passages joined by any chain of repetitions: rows of all first ones, and each one's group.

        Groups count from 0 in the order of their first passage.
        """
        lower, higher = unpack(self.pairs)
        rows = np.unique(np.concatenate([self.first[self.copies].astype(np.int64), lower, higher]))
        edges = (np.searchsorted(rows, lower), np.searchsorted(rows, higher))
        graph = coo_array((np.ones(len(lower), bool), edges), shape=(len(rows), len(rows)))
        labels = connected_components(graph, directed=False)[1] if len(rows) else rows
        _, begins, labels = np.unique(labels, return_index=True, return_inverse=True)
        return rows, np.argsort(np.argsort(begins))[labels]

    def counts(self) -> CorpusCounts:
        """Numbers as the summary gives them."""
        rows, groups = self.groups
        exact = len(np.unique(self.first[self.copies]))
        return CorpusCounts(
            passages=len(self.first),
            empty=int(self.empty.sum()),
            exact_groups=exact,
            exact_passages=exact + len(self.copies),
            near_pairs=len(self.pairs),
            groups=int(groups.max(initial=-1)) + 1,
            group_passages=len(rows) + len(self.copies),
        )

    def likeness(self, some: Rows, others: Rows) -> Similarities:
        """`EXACT` for each pair (some[i], others[i]) with the same text, the similarity of near-duplicates, else 0."""
        left, right = self.first[some], self.first[others]
        packed = pack(np.minimum(left, right), np.maximum(left, right))
        at = np.searchsorted(self.pairs, packed)
        known = np.append(self.pairs, np.uint64(0))[at] == packed
        near = np.where(known & (at < len(self.pairs)), np.append(self.similarity, np.float32(0))[at], 0)
        return np.where(left == right, np.float32(EXACT), near).astype(np.float32)

    def near(self, rows: Rows) -> tuple[Rows, Rows]:
        """Near-duplicates of passages that stand for their text: (one of `rows`, the other) for each pair it is in."""
        lower, higher = unpack(self.pairs)
        low, high = np.isin(lower, rows), np.isin(higher, rows)
        return np.concatenate([lower[low], higher[high]]), np.concatenate([higher[low], lower[high]])

    def write(self, path: Path, ids: IdRows) -> None:
        """Write all relations: (group, kind, first, second, similarity), group by group.

        Kind `exact`: the second has the text of the first. Kind `near`: two different texts.
        """
        rows, groups = self.groups
        lower, higher = unpack(self.pairs)
        first = np.concatenate([self.first[self.copies].astype(np.int64), lower])
        second = np.concatenate([self.copies, higher])
        near = np.arange(len(first)) >= len(self.copies)
        similarity = np.concatenate([np.ones(len(self.copies), np.float32), self.similarity])
        group = groups[np.searchsorted(rows, first)]
        order = np.lexsort((second, first, near, group))

        def batch(some: Rows) -> pa.RecordBatch:
            kinds = pa.array(np.where(near[some], "near", "exact"), pa.string())
            names = [pa.array(ids.ids(side[some]), pa.string()) for side in (first, second)]
            return pa.record_batch([pa.array(group[some]), kinds, *names, pa.array(similarity[some])], schema=SCHEMA)

        parts = np.split(order, range(tables.ROWS, len(order), tables.ROWS))
        tables.write(path, map(batch, parts), SCHEMA)
