"""Ids to rows and back: token ids, embeddings and pair scores are all addressed by row, not by id."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandem.data.collection import QUERIES, Collection
from tandem.errors import UserError

Rows = np.ndarray[Any, np.dtype[np.int64]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]

# Any odd number hashes; the next one is tried where two ids of a corpus collide.
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
SLICE = 1 << 20


def hash_ids(ids: pa.Array, multiplier: int) -> Hashes:
    """64-bit polynomial hash of each string's UTF-8 bytes, modulo 2^64.

    Args:
        ids: strings without nulls.
        multiplier: the base, odd.
    Returns:
        Shape (ids,).
    """
    hashes = np.empty(len(ids), np.uint64)
    base = np.uint64(multiplier)
    for start in range(0, len(ids), SLICE):
        part = ids.slice(start, SLICE).cast(pa.large_binary())
        _, ends, text = part.buffers()
        offsets = np.frombuffer(ends, np.int64)[part.offset : part.offset + len(part) + 1]
        data = np.frombuffer(text, np.uint8) if text else np.empty(0, np.uint8)
        lengths = np.diff(offsets)
        made = lengths.astype(np.uint64)
        active = np.arange(len(part))
        for at in range(int(lengths.max(initial=0))):
            active = active[lengths[active] > at]
            made[active] = made[active] * base + data[offsets[active] + at]
        hashes[start : start + len(part)] = made
    return hashes


class IdRows:
    """Finds the rows of ids by a sorted array of hashes: about 28 bytes an id, and every hit is compared in full.

    Args:
        ids: unique ids in row order.
        what: what they name, for messages: `passage` or `query`.
        where: the file they come from, for messages.
    Raises:
        UserError: an id stands twice.
    """

    def __init__(self, ids: pa.ChunkedArray, what: str, where: object) -> None:
        self.what, self.where = what, where
        chunks = ids.cast(pa.large_string()).combine_chunks()
        self.all: pa.Array = chunks.chunk(0) if isinstance(chunks, pa.ChunkedArray) else chunks
        for self.multiplier in MULTIPLIERS:
            hashes = hash_ids(self.all, self.multiplier)
            order = np.argsort(hashes, kind="stable")
            self._hashes, self._rows = hashes[order], order.astype(np.uint32)
            if not np.any(self._hashes[1:] == self._hashes[:-1]):
                return
        raise UserError(f"{where}: {what} id {_twice(self.all)} stands twice; ids are unique")

    def __len__(self) -> int:
        return len(self.all)

    def rows(self, ids: Sequence[str], missing_ok: bool = False) -> Rows:
        """Row of each id, shape (ids,).

        Args:
            ids: any ids, in any order.
            missing_ok: give -1 for unknown ids.
        Raises:
            UserError: an id is unknown, and that is not OK; names the first.
        """
        asked = pa.array(ids, pa.large_string())
        if not len(self):
            known, rows = np.zeros(len(asked), bool), np.zeros(len(asked), np.int64)
        else:
            at = np.searchsorted(self._hashes, hash_ids(asked, self.multiplier)).clip(max=len(self) - 1)
            rows = self._rows[at].astype(np.int64)
            known = np.asarray(pc.equal(self.all.take(pa.array(rows)), asked))
        if missing_ok:
            rows[~known] = -1
        elif not known.all():
            first, number = asked[int(np.argmin(known))], int((~known).sum())
            raise UserError(f"{self.where}: holds no {self.what} {first} ({number:,} of {len(asked):,} ids unknown)")
        return rows

    def ids(self, rows: Rows) -> list[str]:
        """The id of each row."""
        found: list[str] = self.all.take(pa.array(rows)).to_pylist()
        return found


def _twice(ids: pa.Array) -> str:
    """The first id, alphabetically, that stands twice."""
    ordered = ids.take(pc.sort_indices(ids)).to_pylist()
    return str(next(a for a, b in pairwise(ordered) if a == b))


def doc_rows(collection: Collection) -> IdRows:
    """Rows of a collection's passages: `corpus.parquet`, passage tokens and passage embeddings share them."""
    return IdRows(collection.doc_ids(), "passage", collection.artifact.folder)


def query_rows(collection: Collection) -> IdRows:
    """Rows of a collection's queries, of all splits: `queries.parquet` and query tokens share them."""
    table = pq.read_table(collection.artifact.path(QUERIES), columns=["query_id"])
    return IdRows(table["query_id"], "query", collection.artifact.folder)


def split_rows(collection: Collection, split: str) -> Rows:
    """Rows of a split's queries, in file order; a `UserError` if the split has none."""
    splits = pq.read_table(collection.artifact.path(QUERIES), columns=["split"])["split"]
    rows = np.flatnonzero(np.asarray(pc.equal(splits, split))).astype(np.int64)
    if not len(rows):
        have = ", ".join(sorted(splits.unique().to_pylist()))
        raise UserError(f"{collection.artifact.folder}: has no queries of the split {split}; it has {have or 'none'}")
    return rows
