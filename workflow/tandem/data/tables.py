"""Write and read rows in Parquet, in row groups of a fixed size, so that the same rows give the same bytes."""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tandem.cluster import work

ROWS_PER_GROUP = 16384
_SWITCH_SECONDS = 5e-5  # seconds
_TEXT = pa.string()
CORPUS_SCHEMA = pa.schema([("doc_id", _TEXT), ("title", _TEXT), ("text", _TEXT)])
QUERIES_SCHEMA = pa.schema([("query_id", _TEXT), ("text", _TEXT), ("split", _TEXT)])
QRELS_SCHEMA = pa.schema(
    [("query_id", _TEXT), ("doc_id", _TEXT), ("relevance", pa.int32()), ("split", _TEXT)]
)
ANSWERS_SCHEMA = pa.schema([("query_id", _TEXT), ("answers", pa.list_(_TEXT))])
LISTS_SCHEMA = pa.schema(
    [("query_id", _TEXT), ("doc_id", _TEXT), ("label", pa.int32()), ("score", pa.float32())]
)
_Item = TypeVar("_Item")
_Row = TypeVar("_Row", bound=tuple[Any, ...])
_QUOTE, _BACKSLASH = b'"\\'


class Checksum:
    """Compute sha256 over streamed rows, each as one line of JSON, so that no two collections have the same text."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.rows = 0

    def of(self, rows: Iterable[_Row]) -> Iterator[_Row]:
        """Yield the rows, unchanged."""
        for row in rows:
            self._digest.update(json.dumps(row).encode() + b"\n")
            self.rows += 1
            yield row

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch whose columns are all strings: the same digest as `of`, in a quarter of its time."""
        inside: list[pa.Array | str] = []
        for column in batch.columns:
            if inside:
                inside.append('", "')
            inside.append(_escape(column))
        lines = pc.binary_join_element_wise('["', *inside, '"]\n', "")
        _, ends, text = lines.buffers()
        size = memoryview(ends).cast("i")[batch.num_rows]
        self._digest.update(memoryview(text)[:size])
        self.rows += batch.num_rows

    def hex(self) -> str:
        """Return the digest so far."""
        return self._digest.hexdigest()


def _escape(texts: pa.Array) -> pa.Array:
    """Return the texts as they are written between the quotes of a JSON string; most need no change."""
    letters, bounds = get_utf8(texts)
    # Unsigned bytes: below the space (control characters) the difference wraps around to more than 94, too.
    is_odd = (letters - 32 > 94) | (letters == _QUOTE) | (letters == _BACKSLASH)
    has_odd = count_marked(is_odd, bounds) > 0
    if not has_odd.any():
        return texts
    mask = pa.array(has_odd)
    escaped = [json.dumps(text)[1:-1] for text in texts.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(escaped, texts.type))


def get_utf8(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of all texts, one after the other, and where each begins among them (one more for the end)."""
    _, ends, data = texts.buffers()
    # A slice of an array keeps the buffers of the whole, from its offset on.
    first = texts.offset
    bounds = np.frombuffer(ends, np.int32)[first : first + len(texts) + 1].astype(np.int64)
    letters = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
    return letters, bounds - bounds[0]


def count_marked(marked: NDArray[np.bool_], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the marked bytes of each text; see `get_utf8`."""
    return np.diff(np.searchsorted(np.flatnonzero(marked), bounds))


def combine_checksums(checksums: Iterable[Checksum]) -> str:
    """Return one sha256 over several checksums, in order; those without rows are left out."""
    digests = [checksum.hex() for checksum in checksums if checksum.rows]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def split_columns(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the columns in groups of `ROWS_PER_GROUP` rows; the last group may be smaller."""
    stream = iter(rows)
    while chunk := list(islice(stream, ROWS_PER_GROUP)):
        yield list(zip(*chunk, strict=True))


def make_batch(parts: Iterable[Iterable[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns as a record batch."""
    columns = [pa.array(part, field.type) for part, field in zip(parts, schema, strict=True)]
    return pa.record_batch(columns, schema=schema)


def make_batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield record batches of `ROWS_PER_GROUP` rows; the last one may be smaller."""
    return (make_batch(parts, schema) for parts in split_columns(rows))


def prefetch_batches(items: Iterator[_Item]) -> Iterator[_Item]:
    """Prefetch items, as `work.prefetch_items` does, for a consumer that computes by Arrow and numpy."""
    before = sys.getswitchinterval()
    # Arrow and numpy release Python's lock dozens of times an item, and would each time wait the usual 5 ms for it.
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        with work.prefetch_items(items) as coming:
            yield from coming
    finally:
        sys.setswitchinterval(before)


def make_table(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Return a table of all rows, in batches of `ROWS_PER_GROUP`."""
    return pa.Table.from_batches(make_batches(rows, schema), schema)


def iterate_rows(table: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield rows of a table as tuples of some columns, or of all."""
    for batch in table.select(columns or table.column_names).to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def write_batches(path: Path, parts: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write record batches, one row group each; a thread writes a batch while the next one is made."""
    with (
        pq.ParquetWriter(path, schema, compression="zstd") as writer,
        work.write_behind(writer.write_batch) as write_batch,
    ):
        for part in parts:
            write_batch(part, ROWS_PER_GROUP)


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file to read it batch by batch: Arrow's default would keep all that was read, packed, to the end."""
    return pq.ParquetFile(path, pre_buffer=False)


def stream_rows(path: Path, *columns: str) -> Iterator[Any]:
    """Yield rows of a file as tuples of some columns, or of all, a batch in memory at a time."""
    with open_parquet(path) as file:
        for batch in file.iter_batches(columns=list(columns) or None):
            names = columns or batch.schema.names
            values = [batch[name].to_pylist() for name in names]
            yield from zip(*values, strict=True)


def read_value(path: Path, column: str, row: int) -> Any:
    """Return one value of a file of `write_batches` with batches of `ROWS_PER_GROUP` rows, reading one row group."""
    group, offset = divmod(row, ROWS_PER_GROUP)
    with open_parquet(path) as file:
        return file.read_row_group(group, columns=[column])[column][offset].as_py()
