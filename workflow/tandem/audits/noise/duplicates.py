"""The relation "repeats": which passages have the same text, which nearly, and the groups they form."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tandem.audits.noise.buckets import Firsts, pack, unpack
from tandem.audits.noise.hashing import Hashes
from tandem.audits.noise.jaccard import Similarities
from tandem.data import tables
from tandem.data.rows import IdRows, Rows

Flags = np.ndarray[Any, np.dtype[np.bool_]]
SCHEMA = pa.schema(
    [
        ("group", pa.int64()),
        ("kind", pa.string()),
        ("first", pa.string()),
        ("second", pa.string()),
        ("similarity", pa.float32()),
    ]
)


@dataclass(frozen=True)
class Duplicates:
    """Passages are rows. Of passages with the same text the first stands for all of them in near-duplicate pairs.

    Attributes:
        first: for each passage the first one with the same text.
        empty: passages without text; they repeat nothing.
        pairs: near-duplicates, packed (`buckets.pack`), ascending.
        similarity: of each pair.
    """

    first: Firsts
    empty: Flags
    pairs: Hashes
    similarity: Similarities

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

    def counts(self) -> dict[str, int]:
        """Numbers of passages, groups and pairs, as the summary gives them."""
        rows, groups = self.groups
        exact = len(np.unique(self.first[self.copies]))
        return {
            "passages": len(self.first),
            "empty": int(self.empty.sum()),
            "exact_groups": exact,
            "exact_passages": exact + len(self.copies),
            "near_pairs": len(self.pairs),
            "groups": int(groups.max(initial=-1)) + 1,
            "group_passages": len(rows) + len(self.copies),
        }

    def likeness(self, some: Rows, others: Rows) -> Similarities:
        """How alike pairs of different passages are: 2 for the same text, the similarity of a near-duplicate, else 0.

        Args:
            some: rows of the corpus.
            others: as many.
        """
        one, other = self.first[some], self.first[others]
        packed = pack(np.minimum(one, other), np.maximum(one, other))
        at = np.searchsorted(self.pairs, packed)
        found = np.append(self.pairs, np.uint64(0))[at] == packed
        near = np.where(found & (at < len(self.pairs)), np.append(self.similarity, np.float32(0))[at], 0)
        return np.where(one == other, np.float32(2), near).astype(np.float32)

    def near(self, rows: Rows) -> tuple[Rows, Rows]:
        """Near-duplicates of passages that stand for their text: (one of `rows`, the other) for each pair it is in."""
        lower, higher = unpack(self.pairs)
        low, high = np.isin(lower, rows), np.isin(higher, rows)
        return np.concatenate([lower[low], higher[high]]), np.concatenate([higher[low], lower[high]])

    def write(self, path: Path, ids: IdRows) -> None:
        """Write all relations: (group, kind, first, second, similarity), group by group.

        Kind `exact`: the second has the text of the first. Kind `near`: two different texts.
        """
        tables.write(path, self._batches(ids), SCHEMA)

    def _batches(self, ids: IdRows) -> Iterator[pa.RecordBatch]:
        rows, groups = self.groups
        lower, higher = unpack(self.pairs)
        first = np.concatenate([self.first[self.copies].astype(np.int64), lower])
        second = np.concatenate([self.copies, higher])
        near = np.arange(len(first)) >= len(self.copies)
        similarity = np.concatenate([np.ones(len(self.copies), np.float32), self.similarity])
        group = groups[np.searchsorted(rows, first)]
        order = np.lexsort((second, first, near, group))
        for some in np.split(order, range(tables.ROWS, len(order), tables.ROWS)):
            kinds = pa.array(np.where(near[some], "near", "exact"), pa.string())
            names = [pa.array(ids.ids(side[some]), pa.string()) for side in (first, second)]
            columns = [pa.array(group[some]), kinds, *names, pa.array(similarity[some])]
            yield pa.record_batch(columns, schema=SCHEMA)
