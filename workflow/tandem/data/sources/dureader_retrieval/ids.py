"""`passage2id.map.json`: one JSON object from the line numbers of the collection, from 0, to passage ids."""

import zipfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import ijson
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandem.data.reading import BOM, clean, open_bytes, whole
from tandem.errors import UserError

CHUNK = 1 << 16  # ids that are Python objects at once
MOST = 1 << 40  # lines of a collection


def read_ids(path: Path) -> pa.ChunkedArray:
    """The passage id of each line, streamed: 36 bytes a passage are kept, for ids of 32 characters.

    The keys may come in any order.

    Raises:
        UserError: not such a JSON object, or its keys are not the numbers from 0, each once.
    """
    numbers: list[NDArray[np.int64]] = []
    chunks: list[pa.Array] = []
    in_order = True
    stream = _pairs(path)
    while pairs := list(islice(stream, CHUNK)):
        start = CHUNK * len(chunks)
        numbers.append(np.array([number for number, _ in pairs], np.int64))
        chunks.append(pa.array([name for _, name in pairs], pa.string()))
        in_order &= np.array_equal(numbers[-1], np.arange(start, start + len(pairs)))
    ids = pa.chunked_array(chunks, pa.string())
    if in_order:
        return ids
    lines = np.concatenate(numbers)
    order = np.argsort(lines, kind="stable")
    _require_all(path, lines[order])
    return pa.chunked_array(
        [ids.take(pa.array(order[start : start + CHUNK])).combine_chunks() for start in range(0, len(order), CHUNK)],
        pa.string(),
    )


def each(ids: pa.ChunkedArray) -> Iterator[str]:
    """The ids in line order."""
    for chunk in ids.chunks:
        yield from chunk.to_pylist()


def _pairs(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, passage id) of each member of the object, in file order."""
    with open_bytes(path) as file:
        try:
            if file.read(len(BOM)) != BOM:
                file.seek(0)
            for key, value in ijson.kvitems(file, ""):
                yield _line(path, key), _name(path, key, value)
        except (ijson.JSONError, EOFError, zlib.error, zipfile.BadZipFile, OSError) as error:
            why = " ".join(str(error).split())[:80]
            raise UserError(f"{path}: broken or truncated ({why}); fetch it again") from None


def _line(path: Path, key: str) -> int:
    """A line number."""
    number = whole(str(path), "a line number", key)
    if not 0 <= number < MOST:
        raise UserError(f"{path}: a line number is {key[:40]!r}; numbers from 0 are allowed")
    return number


def _name(path: Path, key: str, value: Any) -> str:
    """A passage id."""
    if not isinstance(value, str):
        raise UserError(f"{path}: the id of line {key} is {value!r}; a text is needed")
    return clean(str(path), f"the id of line {key}", value)


def _require_all(path: Path, lines: NDArray[np.int64]) -> None:
    """Refuse sorted line numbers that are not 0, 1, 2, …"""
    wrong = np.flatnonzero(lines != np.arange(len(lines)))
    if len(wrong):
        first = int(wrong[0])
        found = "twice" if first and lines[first] == lines[first - 1] else f"but not line {first}"
        raise UserError(f"{path}: names line {lines[first]} {found}; all lines from 0, each once, are needed")
