"""Training lists in arrays, and which of them make up each step.

A list is a query with its positives and its drawn negatives. The order of lists, the positive of each visit and its
negatives follow from (seed, epoch, list) alone: resuming needs no state, and workers or shards change nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from tandem.data.tables import streaming
from tandem.errors import UserError
from tandem.models.template import Ids


@dataclass(frozen=True)
class Lists:
    """All training lists: `passages[offsets[i]:offsets[i + 1]]` belong to list i, its positives first.

    Attributes:
        queries: row of each list's query in queries.parquet, shape (lists,).
        offsets: shape (lists + 1,).
        positives: number of positives of each list, shape (lists,).
        passages: rows in corpus.parquet.
    """

    queries: Ids
    offsets: Ids
    positives: Ids
    passages: Ids

    def __len__(self) -> int:
        return len(self.queries)


def read_lists(path: Path) -> Lists:
    """The lists of a candidates.parquet whose rows of one list stand together, positives first.

    Memory: 13 bytes a row; 500,000 lists of 128 passages take 0.8 GB.
    """
    columns = ["query_row", "passage_row", "label", "list"]
    parts: list[tuple[Ids, Ids, Ids, Ids]] = []
    for batch in streaming(path).iter_batches(1 << 20, columns=columns):
        query, passage, label = (batch.column(i).to_numpy(zero_copy_only=False) for i in range(3))
        denoised = np.asarray(batch.column(3).to_numpy(zero_copy_only=False) == "denoised", np.int8)
        parts.append((query, passage, label, denoised))
    if not parts:
        raise UserError(f"{path}: holds no training list; widen candidates.depth or relax candidates.denoise")
    query, passage, label, denoised = (np.concatenate(column) for column in zip(*parts, strict=True))
    starts = np.flatnonzero(np.r_[True, (query[1:] != query[:-1]) | (denoised[1:] != denoised[:-1])])
    offsets = np.r_[starts, len(query)].astype(np.int64)
    return Lists(query[starts], offsets, np.add.reduceat(label.astype(np.int64), starts), passage)


@dataclass(frozen=True)
class Batch:
    """One step's lists.

    Attributes:
        queries: rows of the queries, shape (queries,).
        passages: rows of the passages, positive first; -1 pads, shape (queries, list).
        teacher: a teacher's scores of them, float32, of no meaning where nothing stands, same shape; None without one.
    """

    queries: Ids
    passages: Ids
    teacher: Ids | None = None

    @property
    def mask(self) -> Ids:
        """True where a passage stands, shape (queries, list)."""
        return self.passages >= 0

    def part(self, start: int, stop: int) -> "Batch":
        """The lists from start to stop."""
        taught = None if self.teacher is None else self.teacher[start:stop]
        return Batch(self.queries[start:stop], self.passages[start:stop], taught)


def draw(lists: Lists, index: int, size: int, seed: int, epoch: int) -> Ids:
    """One visit of a list: one of its positives, then up to size - 1 of its negatives without replacement.

    Returns:
        Passage rows, shape (size,), padded with -1.
    """
    rng = np.random.default_rng([seed, 1, epoch, index])
    start, stop, positives = int(lists.offsets[index]), int(lists.offsets[index + 1]), int(lists.positives[index])
    row = np.full(size, -1, np.int64)
    row[0] = lists.passages[start + int(rng.integers(positives))]
    negatives = lists.passages[start + positives : stop]
    chosen = rng.permutation(len(negatives))[: size - 1]
    row[1 : 1 + len(chosen)] = negatives[chosen]
    return row


def visits_in(lists: int, per_batch: int, epochs: float, steps: int | None) -> int:
    """How many lists training visits: `steps` full batches if given, else `epochs` passes (the last batch uneven)."""
    return steps * per_batch if steps is not None else max(1, int(np.ceil(epochs * lists)))


@lru_cache(maxsize=2)
def order(lists: int, seed: int, epoch: int) -> Ids:
    """The permutation of the lists in an epoch."""
    return np.random.default_rng([seed, 0, epoch]).permutation(lists)


def batches(lists: Lists, per_batch: int, size: int, seed: int, visits: int, first: int = 0) -> Iterator[Batch]:
    """The batches from step `first` on: epochs are permutations of the lists, laid end to end.

    Args:
        per_batch: queries of a batch.
        size: passages of a list, the positive included.
        visits: lists visited in the whole training; the last batch may be smaller.
    """
    for start in range(first * per_batch, visits, per_batch):
        chosen = []
        for visit in range(start, min(start + per_batch, visits)):
            epoch, place = divmod(visit, len(lists))
            chosen.append((epoch, int(order(len(lists), seed, epoch)[place])))
        rows = np.stack([draw(lists, index, size, seed, epoch) for epoch, index in chosen])
        yield Batch(lists.queries[[index for _, index in chosen]], rows)
