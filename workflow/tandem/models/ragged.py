"""Rows of token ids of different lengths in two arrays, their files, and how they are split into batches."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

Ids = np.ndarray[Any, np.dtype[Any]]

# tokens: about what another forward and backward pass costs in casts of weights and sums of gradients
OVERHEAD = 128


def sum_lengths(lengths: Ids) -> Ids:
    """Return the bounds of rows laid end to end: 0 and the running sums of their lengths, int64, shape (rows + 1,)."""
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return bounds


def join_ranges(starts: Ids, lengths: Ids) -> Ids:
    """Return the indices start, start + 1, …, start + length - 1 of each row, end to end, shape (sum of lengths,)."""
    offsets = sum_lengths(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])


_TITLE_DTYPE = "<i4"  # how many tokens titles have, in files


@dataclass(frozen=True)
class Ragged:
    """Rows of token ids of different lengths: `ids[offsets[i]:offsets[i + 1]]` is row i.

    Attributes:
        titles: of rows that are a title, separators and a text, how many tokens are the title's, shape (rows,); None of
            any other rows.
    """

    ids: Ids
    offsets: Ids
    titles: Ids | None = field(default=None, kw_only=True)

    @classmethod
    def open(cls, folder: Path, name: str, dtype: str) -> Self:
        """Map the files of `write_ragged`; an empty one is an empty array."""
        offsets = np.load(folder / f"{name}.offsets.npy", mmap_mode="r", allow_pickle=False)
        titled = folder / f"{name}.titles"
        titles = _map_file(titled, _TITLE_DTYPE) if titled.exists() else None
        return cls(_map_file(folder / f"{name}.ids", dtype), offsets, titles=titles)

    @classmethod
    def of(cls, rows: "Ragged | Sequence[Ids]") -> "Ragged":
        """Separate rows, laid end to end in memory; ragged ones stay as they are."""
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
        """Return token counts of some rows, of the rows' shape."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])

    def count_texts(self, rows: Ids) -> Ids:
        """Return how many texts an encoder reads for each of some rows: one."""
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

    def among(self, ids: Ids | Sequence[int]) -> Ids:
        """Return how many tokens of each row are among some ids, shape (rows,)."""
        counts_before = np.concatenate([[0], np.isin(self.ids, ids).cumsum()])
        return np.diff(counts_before[self.offsets])

    def take(self, rows: Ids) -> "Ragged":
        """Return some rows, in their order and as often as named, in memory."""
        lengths = self.lengths(rows)
        places = join_ranges(np.asarray(self.offsets[rows]), lengths)
        titles = None if self.titles is None else np.asarray(self.titles[rows])
        return Ragged(np.asarray(self.ids)[places], sum_lengths(lengths), titles=titles)

    def cut(self, lengths: Ids) -> "Ragged":
        """Return the first tokens of each row, so many of each, in memory; where a title ends is lost."""
        places = join_ranges(np.asarray(self.offsets[:-1]), lengths)
        return Ragged(np.asarray(self.ids)[places], sum_lengths(lengths))


def cut_longest_first(first: Ids, second: Ids, limit: int | Ids) -> tuple[Ids, Ids]:
    """Return the lengths of two texts, shape (rows,) each, cut to `limit` tokens together as RocketQA's readers do.

    The longer loses one at a time, of equals the second. The limit is that of all rows, or one for each.
    """
    half = -(-limit // 2)  # rounded up
    lengths = np.where(first <= half, first, np.maximum(half, limit - second))
    lengths = np.where(first + second <= limit, first, lengths)
    return lengths, np.minimum(second, limit - lengths)


def _map_file(path: Path, dtype: str) -> Ids:
    """Return a file of numbers, mapped; an empty one cannot be."""
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
    """Write rows of ids as they come, and return the numbers of rows and of tokens.

    `<name>.ids` has the ids (raw), `<name>.offsets.npy` where rows begin and end (int64), and `<name>.titles`, of rows
    with titles, how many tokens those have (raw, `_TITLE_DTYPE`).
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
    # of the same length whatever the number
    header = {"shape": (count,), "fortran_order": False, "descr": "<i8"}
    np.lib.format.write_array_header_1_0(file, header)


def split_by_tokens(
    lengths: Ids, budget: int, packed: bool = False
) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Split rows into batches of at most `budget` tokens: rows times longest, or where packed the sum of the lengths.

    Returns the row indices of each batch. Rows are sorted by (length, index): the split depends on the lengths alone,
    special tokens included. A row longer than the budget is a batch of its own.
    """
    order = np.argsort(lengths, kind="stable").astype(np.int64)
    ordered = lengths[order]
    batches = []
    start = 0
    while start < len(order):
        shortest = int(ordered[start])
        # No batch has more rows than fit if all were as short as its first.
        most = max(1, budget // shortest) if shortest else len(order)
        ahead = ordered[start : start + most]
        tokens = np.cumsum(ahead) if packed else ahead * np.arange(1, len(ahead) + 1)
        end = start + max(1, int(np.searchsorted(tokens, budget, side="right")))
        batches.append(order[start:end])
        start = end
    return batches


def make_micro_batches(lengths: Ids, budget: int, multiple: int, packed: int | None) -> list[Ids]:
    """Make batches for a training: the smaller they are, the less padding, but each costs `OVERHEAD`.

    Rows are sorted by (padded length, index) and cut where the sum of computed tokens and overheads is least, by
    dynamic programming over the distinct padded lengths.

    Args:
        lengths: tokens of each row, special tokens included, shape (rows,).
        budget: tokens of a padded batch, at most; a row longer than it is a batch of its own.
        packed: tokens of a packed row, which has no padding; None where rows are padded.
    """
    if packed is not None:
        return split_by_tokens(lengths, packed, packed=True)
    padded = -(-lengths // multiple) * multiple
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
    """Return how many batches of at most `budget` tokens rows of this width fill; counts or arrays of them."""
    rows_per_batch = max(1, budget // max(1, width))
    return -(-rows // rows_per_batch)  # rounded up
