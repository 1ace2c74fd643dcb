"""Rows to Parquet in row groups of a fixed size, so that the same rows give the same bytes; and their checksum."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 16384
CORPUS_SCHEMA = pa.schema([("doc_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
QUERIES_SCHEMA = pa.schema([("query_id", pa.string()), ("text", pa.string()), ("split", pa.string())])
QRELS_SCHEMA = pa.schema(
    [("query_id", pa.string()), ("doc_id", pa.string()), ("relevance", pa.int32()), ("split", pa.string())]
)
ANSWERS_SCHEMA = pa.schema([("query_id", pa.string()), ("answers", pa.list_(pa.string()))])
LISTS_SCHEMA = pa.schema(
    [("query_id", pa.string()), ("doc_id", pa.string()), ("label", pa.int32()), ("score", pa.float32())]
)
Row = TypeVar("Row", bound=tuple[Any, ...])


class Checksum:
    """sha256 over rows as they pass: each is one line of JSON, so that no two collections look the same."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.rows = 0

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows, unchanged."""
        for row in rows:
            self._digest.update(json.dumps(row).encode() + b"\n")
            self.rows += 1
            yield row

    def hex(self) -> str:
        """The digest so far."""
        return self._digest.hexdigest()


def combined(checksums: Iterable[Checksum]) -> str:
    """One sha256 over several, in order; those without a row are left out."""
    return hashlib.sha256("\n".join(c.hex() for c in checksums if c.rows).encode()).hexdigest()


def batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Record batches of `ROWS` rows, the last of what is left."""
    stream = iter(rows)
    while chunk := list(islice(stream, ROWS)):
        columns = zip(*chunk, strict=True)
        arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
        yield pa.record_batch(arrays, schema=schema)


def gather(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """All rows in memory, in batches of `ROWS`."""
    return pa.Table.from_batches(batches(rows, schema), schema)


def rows(table: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Rows of a table as tuples of some columns, or of all."""
    for batch in table.select(columns or table.column_names).to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def write(path: Path, parts: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write record batches, one row group each."""
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in parts:
            writer.write_batch(part, row_group_size=ROWS)


def value_at(path: Path, column: str, row: int) -> Any:
    """One value of a file of `write` with batches of `ROWS` rows, reading one row group."""
    group, offset = divmod(row, ROWS)
    with pq.ParquetFile(path) as file:
        return file.read_row_group(group, columns=[column])[column][offset].as_py()
