"""Hold a run's lists as columns of row numbers, order them, and look up the names behind the rows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tandem.data.collection import QUERIES, Collection
from tandem.data.rows import PassageOrder, Rows
from tandem.store.artifact import Artifact

Floats = NDArray[np.float32]
Floats64 = NDArray[np.float64]
RankedRows = tuple[int, Rows, Floats]  # the query's row, its passages' rows, their scores

RUN_SCHEMA = pa.schema([("query", pa.uint32()), ("passage", pa.uint32()), ("score", pa.float32())])


def open_column_writer(path: Path, schema: pa.Schema, numbers: Sequence[str]) -> pq.ParquetWriter:
    """Return a writer of packed tables.

    The columns `numbers` are stored byte by byte, the others by distinct values.
    """
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in schema.names if name not in numbers],
        column_encoding=dict.fromkeys(numbers, "BYTE_STREAM_SPLIT"),
    )


class DatasetNames:
    """Look up the ids of a dataset's queries and passages by row; they are read when they are first needed.

    With an `order`, which is on disk, the passages' ids take no memory.
    """

    def __init__(self, dataset: Artifact, order: PassageOrder | None = None) -> None:
        self.collection = Collection(dataset)
        self.order = order

    @cached_property
    def queries(self) -> list[str]:
        """Return the id of each query, of all splits."""
        path = self.collection.artifact.path(QUERIES)
        ids: list[str] = pq.read_table(path, columns=["query_id"])["query_id"].to_pylist()
        return ids

    @cached_property
    def passages(self) -> pa.Array:
        """Return the id of each passage."""
        return self.collection.doc_ids().cast(pa.large_string()).combine_chunks()

    def at(self, rows: Rows) -> pa.Array:
        """Return the ids of some passages as an Arrow array."""
        return self.order.at(rows) if self.order else self.passages.take(pa.array(rows))

    def of(self, rows: Rows) -> list[str]:
        """Return the ids of some passages as a list of strings."""
        ids: list[str] = self.at(rows).to_pylist()
        return ids

    def ranked(self, lists: Iterable[RankedRows]) -> Iterator[tuple[str, list[str], Floats]]:
        """Yield (query id, document ids, scores) of each list of rows."""
        return ((self.queries[query], self.of(rows), scores) for query, rows, scores in lists)


@dataclass(frozen=True)
class RunBlock:
    """Hold complete lists, one after the other, with a line for each passage of a query.

    Attributes:
        queries, passages: rows, uint32, shape (lines,).
        scores: float32, same shape.
    """

    queries: Any
    passages: Any
    scores: Any

    @classmethod
    def of(cls, lists: Sequence[RankedRows]) -> "RunBlock":
        """Return the block of some queries' lists."""
        lengths = [len(rows) for _, rows, _ in lists]
        queries = np.repeat(np.array([query for query, _, _ in lists], np.uint32), lengths)
        passages = np.concatenate([rows for _, rows, _ in lists]).astype(np.uint32)
        scores = np.concatenate([scores for _, _, scores in lists], dtype=np.float32)
        return cls(queries, passages, scores)

    def ranked(self, names: DatasetNames) -> "RunBlock":
        """Return the block with each list sorted by score, then by document id, and with strictly falling scores.

        Raises:
            ValueError: a score is not a number.
        """
        if np.isnan(self.scores).any():
            raise ValueError("a score is not a number")
        passages = self.passages
        scores = self.scores
        # Whether a line is of the same list as the line above it, and from that the number of each line's list.
        same_list = self.queries[1:] == self.queries[:-1]
        lists = np.cumsum(np.append(0, ~same_list))[: len(scores)]

        rises = same_list & (scores[1:] > scores[:-1])
        if rises.any():
            order = np.lexsort((-scores, lists))
            passages = passages[order]
            scores = scores[order]
        ties = same_list & (scores[1:] == scores[:-1])
        if not ties.any():
            return RunBlock(self.queries, passages, scores)

        # A tie concerns both of its lines, while `ties` has one entry fewer than there are lines.
        tied = np.flatnonzero(np.append(ties, False) | np.append(False, ties))
        order_by_id = pc.sort_indices(names.at(passages[tied])).to_numpy()
        rank_by_id = np.empty(len(tied), np.int64)
        rank_by_id[order_by_id] = np.arange(len(tied))
        best_first = tied[np.lexsort((rank_by_id, -scores[tied], lists[tied]))]
        passages = passages.copy()
        scores = scores.copy()
        passages[tied] = passages[best_first]
        scores[tied] = scores[best_first]

        # A lowered score may reach the next one below, so whole lists are lowered.
        has_tie = np.zeros(lists[-1] + 1, bool)
        has_tie[lists[tied]] = True
        lines = np.flatnonzero(has_tie[lists])
        scores[lines] = break_ties(scores[lines], lists[lines])
        return RunBlock(self.queries, passages, scores)

    def table(self) -> pa.Table:
        """Return the lines as a table of `RUN_SCHEMA`."""
        return pa.table([self.queries, self.passages, self.scores], schema=RUN_SCHEMA)

    def lists(self) -> Iterator[RankedRows]:
        """Yield the list of each query."""
        starts = np.flatnonzero(np.diff(self.queries.astype(np.int64), prepend=-1)).tolist()
        passages = self.passages.astype(np.int64)
        for start, stop in pairwise([*starts, len(passages)]):
            yield int(self.queries[start]), passages[start:stop], self.scores[start:stop]


def break_ties(scores: Floats, lists: Rows) -> Floats:
    """Lower tied scores until they fall strictly; `scores` never rise within a list, `lists` numbers each line's list.

    Let k be the number of a float32 in the order of all float32 numbers. Then k'_i = min(k_i, k'_{i-1} - 1) within a
    list, which is a running minimum of k_i + i. A list's numbers are moved below those of the list before it, so that
    the minimum starts anew.
    """
    # The bits of a positive float32 count up with its value; those of a negative one, except its sign, count down.
    bits = scores.view(np.int32).astype(np.int64)
    keys = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    # Keys have 32 bits: a shift by 34 puts each list below all of the one before.
    offset = np.arange(len(keys)) - (lists << 34)
    lowered = np.minimum.accumulate(keys + offset)
    lowered -= offset

    changed = np.flatnonzero(lowered < keys)
    minus_infinity = -int(np.float32(np.inf).view(np.int32))
    new_keys = np.maximum(lowered[changed], minus_infinity)
    # Back from -n to the bits of a negative number: its sign bit and n.
    new_bits = np.where(new_keys < 0, np.int64(-(1 << 31)) - new_keys, new_keys)
    result = scores.copy()
    result[changed] = new_bits.astype(np.int32).view(np.float32)
    return result
