"""Store rows of token ids of different lengths in two arrays, write them to files, and split them into batches."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

import numpy as np

Ids = np.ndarray[Any, np.dtype[Any]]
_Lengths = TypeVar("_Lengths", int, Ids)

# Cost of one more micro-batch, in tokens: a pass casts the weights and sums their gradients whatever its size.
OVERHEAD = 128


def sum_lengths(lengths: Ids) -> Ids:
    """Return the bounds of rows laid end to end: 0 and the running sums of their lengths, int64, shape (rows + 1,)."""
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return bounds


def round_up(lengths: _Lengths, step: int) -> _Lengths:
    """Return the least multiples of a step that are not below lengths.

    >>> round_up(17, 8)
    24
    """
    return -(-lengths // step) * step


def join_ranges(starts: Ids, lengths: Ids) -> Ids:
    """Return the indices start, start + 1, …, start + length - 1 of each row, end to end, shape (sum of lengths,)."""
    offsets = sum_lengths(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])


_TITLE_DTYPE = "<i4"  # of the numbers in a file of titles


@dataclass(frozen=True)
class Ragged:
    """Hold rows of token ids of different lengths: `ids[offsets[i]:offsets[i + 1]]` is row i.

    Attributes:
        titles: number of tokens of each row's title, shape (rows,), if rows are a title, separators and a text; else
            None.
    """

    ids: Ids
    offsets: Ids
    titles: Ids | None = field(default=None, kw_only=True)

    @classmethod
    def open(cls, folder: Path, name: str, dtype: str) -> Self:
        """Memory-map the files of `write_ragged`."""
        offsets = np.load(folder / f"{name}.offsets.npy", mmap_mode="r", allow_pickle=False)
        titled = folder / f"{name}.titles"
        titles = _map_file(titled, _TITLE_DTYPE) if titled.exists() else None
        return cls(_map_file(folder / f"{name}.ids", dtype), offsets, titles=titles)

    @classmethod
    def of(cls, rows: "Ragged | Sequence[Ids]") -> "Ragged":
        """Return separate arrays as rows; a `Ragged` is returned as it is."""
        if isinstance(rows, Ragged):
            return rows
        ids = np.concatenate([np.empty(0, np.int64), *rows])
        lengths = np.array([len(row) for row in rows], np.int64)
        return cls(ids, sum_lengths(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ids:
        return np.asarray(self.ids[self.offsets[row] : self.offsets[row + 1]])

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest row, 0 without rows."""
        return int(np.diff(self.offsets).max(initial=0))

    def lengths(self, rows: Ids) -> Ids:
        """Return the token counts of some rows, in the shape of `rows`."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])

    def count_texts(self, rows: Ids) -> Ids:
        """Return how many texts an encoder reads for each of some rows: here always one."""
        return np.ones(np.shape(rows), np.int64)

    def find_first_copies(self) -> Ids:
        """Return for each row the first one that has the same ids, int64, shape (rows,)."""
        data = np.ascontiguousarray(self.ids).tobytes()
        bounds = (np.asarray(self.offsets) * self.ids.itemsize).tolist()
        firsts = dict[bytes, int]()
        copies = (
            firsts.setdefault(data[start:end], row)
            for row, (start, end) in enumerate(pairwise(bounds))
        )
        return np.fromiter(copies, np.int64, len(self))

    def count_ids(self, ids: Ids | Sequence[int]) -> Ids:
        """Return how many tokens of each row are one of `ids`, shape (rows,)."""
        counts_before = np.concatenate([[0], np.isin(self.ids, ids).cumsum()])
        return np.diff(counts_before[self.offsets])

    def take(self, rows: Ids) -> "Ragged":
        """Copy some rows into memory, in the order of `rows` and as often as each occurs there."""
        lengths = self.lengths(rows)
        places = join_ranges(np.asarray(self.offsets[rows]), lengths)
        titles = None if self.titles is None else np.asarray(self.titles[rows])
        return Ragged(np.asarray(self.ids)[places], sum_lengths(lengths), titles=titles)

    def cut(self, lengths: Ids) -> "Ragged":
        """Copy the first `lengths[i]` tokens of each row i into memory, without `titles`."""
        places = join_ranges(np.asarray(self.offsets[:-1]), lengths)
        return Ragged(np.asarray(self.ids)[places], sum_lengths(lengths))


def cut_longest_first(first: Ids, second: Ids, limit: int | Ids) -> tuple[Ids, Ids]:
    """Return the lengths of two texts, shape (rows,) each, after a cut to `limit` tokens in all, as in RocketQA's code.

    Tokens are taken away one by one from the longer text, or from the second if they are equally long.

    Args:
        limit: one for all rows, or one for each.
    """
    half = -(-limit // 2)  # rounded up, as the second text is cut first
    lengths = np.where(first <= half, first, np.maximum(half, limit - second))
    lengths = np.where(first + second <= limit, first, lengths)
    return lengths, np.minimum(second, limit - lengths)


def _map_file(path: Path, dtype: str) -> Ids:
    """Memory-map a file of numbers, unless it is empty: numpy cannot map an empty file."""
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def write_ragged(
    folder: Path,
    name: str,
    batches: Iterable[Ragged | list[list[int]]],
    dtype: str,
    titled: bool = False,
) -> tuple[int, int]:
    """Write batches of rows, and return the numbers of rows and of tokens.

    Files: `<name>.ids` has the ids (raw), `<name>.offsets.npy` where rows begin and end (int64), and, if `titled`,
    `<name>.titles` the number of tokens of each title (raw, `_TITLE_DTYPE`).
    """
    rows = tokens = 0
    with ExitStack() as files:
        ids = files.enter_context(open(folder / f"{name}.ids", "wb"))
        offsets = files.enter_context(open(folder / f"{name}.offsets.npy", "wb"))
        titles = files.enter_context(open(folder / f"{name}.titles", "wb")) if titled else None
        _write_header(offsets, 1)
        offsets.write(np.zeros(1, "<i8").tobytes())
        for batch in batches:
            part = (
                batch
                if isinstance(batch, Ragged)
                else Ragged.of([np.asarray(row, dtype) for row in batch])
            )
            offsets.write((tokens + part.offsets[1:]).astype("<i8").tobytes())
            rows += len(part)
            tokens += int(part.offsets[-1])
            ids.write(part.ids.astype(dtype, copy=False).tobytes())
            if titles is not None and part.titles is not None:
                titles.write(part.titles.astype(_TITLE_DTYPE).tobytes())
        offsets.seek(0)
        _write_header(offsets, rows + 1)
    return rows, tokens


def _write_header(file: BinaryIO, count: int) -> None:
    # numpy pads the header to the same length for every count, so it can be overwritten once the count is known
    header = {"shape": (count,), "fortran_order": False, "descr": "<i8"}
    np.lib.format.write_array_header_1_0(file, header)


def split_by_tokens(
    lengths: Ids, budget: int, packed: bool = False
) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Split rows into batches of at most `budget` tokens, and return the row indices of each batch.

    The tokens of a batch are those of its padded rows or, if `packed`, the sum of their lengths. Rows are sorted by
    (length, index), so the split depends only on the lengths. A row longer than the budget is a batch of its own.

    Args:
        lengths: tokens of each row, special tokens included.
    """
    order = np.argsort(lengths, kind="stable").astype(np.int64)
    ordered = lengths[order]
    batches = []
    start = 0
    while start < len(order):
        shortest = int(ordered[start])
        # A batch cannot have more rows than if all were as short as its first one.
        most = max(1, budget // shortest) if shortest else len(order)
        ahead = ordered[start : start + most]
        tokens = np.cumsum(ahead) if packed else ahead * np.arange(1, len(ahead) + 1)
        end = start + max(1, int(np.searchsorted(tokens, budget, side="right")))
        batches.append(order[start:end])
        start = end
    return batches


def make_micro_batches(lengths: Ids, budget: int, multiple: int, packed: int | None) -> list[Ids]:
    """Split rows into batches for a training: small ones have less padding, but each costs `OVERHEAD`.

    Rows are sorted by (padded length, index) and split so that computed tokens and overheads are least in sum, by
    dynamic programming over the distinct padded lengths.

    Args:
        lengths: tokens of each row, special tokens included, shape (rows,).
        budget: tokens of a padded batch, at most; a row longer than it is a batch of its own.
        packed: tokens of a packed row, which has no padding; None where rows are padded.
    """
    if packed is not None:
        return split_by_tokens(lengths, packed, packed=True)
    padded = round_up(lengths, multiple)
    order = np.argsort(padded, kind="stable").astype(np.int64)
    longest, counts = np.unique(padded, return_counts=True)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    # best[i] is the least cost of the rows before bounds[i], whose last batch begins at bounds[cuts[i]].
    best = np.zeros(len(bounds))
    cuts = np.zeros(len(bounds), np.int64)
    for end in range(1, len(bounds)):
        rows = bounds[end] - bounds[:end]
        width = longest[end - 1]
        costs = best[:end] + rows * width + OVERHEAD * _count_batches(rows, width, budget)
        cuts[end] = np.argmin(costs)
        best[end] = costs[cuts[end]]
    batches: list[Ids] = []
    end = len(longest)
    while end:
        rows = order[bounds[cuts[end]] : bounds[end]]
        count = _count_batches(len(rows), longest[end - 1], budget)
        batches = [*np.array_split(rows, count), *batches]
        end = cuts[end]
    return batches


def _count_batches(rows: Any, width: int, budget: int) -> Any:
    """Return how many batches of at most `budget` tokens rows of this width fill; `rows` is a count or an array."""
    rows_per_batch = max(1, budget // max(1, width))
    return -(-rows // rows_per_batch)  # rounded up
