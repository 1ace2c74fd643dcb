"""Rows of token ids of different lengths in two arrays, and their files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

Ids = np.ndarray[Any, np.dtype[Any]]


def ends(lengths: Ids) -> Ids:
    """Where rows laid end to end begin and end: 0 and the running sums of the lengths, int64, shape (rows + 1,)."""
    made = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=made[1:])
    return made


def spread(starts: Ids, lengths: Ids) -> Ids:
    """The indices start, start + 1, …, start + length - 1 of each row, end to end, shape (sum of lengths,)."""
    offsets = ends(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])


@dataclass(frozen=True)
class Ragged:
    """Rows of token ids of different lengths: `ids[offsets[i]:offsets[i + 1]]` is row i."""

    ids: Ids
    offsets: Ids

    @classmethod
    def open(cls, folder: Path, name: str, dtype: str) -> Self:
        """Map the two files of `write_ragged`; an empty one is an empty array."""
        path = folder / f"{name}.ids"
        empty = path.stat().st_size == 0
        ids: Ids = np.empty(0, dtype) if empty else np.memmap(path, dtype=dtype, mode="r")
        return cls(ids, np.load(folder / f"{name}.offsets.npy", mmap_mode="r", allow_pickle=False))

    @classmethod
    def of(cls, rows: "Ragged | Sequence[Ids]") -> "Ragged":
        """Rows given one by one, laid end to end in memory; ragged ones stay as they are."""
        if isinstance(rows, Ragged):
            return rows
        return cls(np.concatenate([np.empty(0, np.int64), *rows]), ends(np.array([len(row) for row in rows], np.int64)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ids:
        return np.asarray(self.ids[self.offsets[row] : self.offsets[row + 1]])

    def lengths(self, rows: Ids) -> Ids:
        """Token counts of some rows, of the rows' shape."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])

    def take(self, rows: Ids) -> "Ragged":
        """Some rows, in their order and as often as named, in memory."""
        lengths = self.lengths(rows)
        return Ragged(np.asarray(self.ids)[spread(np.asarray(self.offsets[rows]), lengths)], ends(lengths))


def write_ragged(folder: Path, name: str, batches: Iterable[list[list[int]]], dtype: str) -> tuple[int, int]:
    """Write rows of ids as they come: `<name>.ids` (raw) and `<name>.offsets.npy` (int64), holding one batch.

    Returns:
        Number of rows and of tokens.
    """
    rows = tokens = 0
    with open(folder / f"{name}.ids", "wb") as ids, open(folder / f"{name}.offsets.npy", "wb") as offsets:
        _header(offsets, 1)
        offsets.write(np.zeros(1, "<i8").tobytes())
        for batch in batches:
            stops = tokens + np.cumsum([len(row) for row in batch], dtype="<i8")
            offsets.write(stops.tobytes())
            rows += len(batch)
            tokens = int(stops[-1]) if batch else tokens
            ids.write(np.concatenate([np.asarray(row, dtype) for row in batch] or [np.empty(0, dtype)]).tobytes())
        offsets.seek(0)
        _header(offsets, rows + 1)
    return rows, tokens


def _header(file: BinaryIO, count: int) -> None:
    """What a .npy file of so many int64 begins with; of the same length whatever the number."""
    told = {"shape": (count,), "fortran_order": False, "descr": "<i8"}
    np.lib.format.write_array_header_1_0(file, told)
