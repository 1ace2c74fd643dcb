"""The queries that are compared: those of the training split with those of every other."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandem.audits.similar.words import normal
from tandem.data.collection import QUERIES, Collection
from tandem.data.splits import order

Rows = np.ndarray[Any, np.dtype[np.int64]]
TRAIN = "train"


@dataclass(frozen=True)
class Asked:
    """Queries of one or several splits, split after split, each in file order.

    Attributes:
        rows: row of each query in queries.parquet.
        ids: its id.
        texts: its text.
        splits: its split.
    """

    rows: Rows
    ids: list[str]
    texts: list[str]
    splits: list[str]

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def read(cls, collection: Collection, splits: list[str]) -> Self:
        """The queries of some splits; a split that the dataset lacks has none."""
        table = pq.read_table(collection.artifact.path(QUERIES), columns=["query_id", "text", "split"])
        found = [np.flatnonzero(np.asarray(pc.equal(table["split"], split))) for split in splits]
        rows = np.concatenate([np.empty(0, np.int64), *found]).astype(np.int64)
        kept = table.take(rows)
        return cls(rows, *(kept[name].to_pylist() for name in ("query_id", "text", "split")))


def read_sides(collection: Collection, splits: list[str] | None) -> tuple[Asked, Asked]:
    """The training queries, and those of the other splits (of all, or of those named)."""
    there = pq.read_table(collection.artifact.path(QUERIES), columns=["split"])["split"].unique().to_pylist()
    others = sorted((split for split in there if split != TRAIN and split in (splits or there)), key=order)
    return Asked.read(collection, [TRAIN]), Asked.read(collection, others)


def same(others: Asked, train: Asked) -> tuple[Rows, Rows]:
    """Pairs with the same words in the same order, whatever their case, width and punctuation.

    Returns:
        Positions in `others` and in `train`, shape (pairs,), by the first and then the second.
    """
    by_words: defaultdict[str, list[int]] = defaultdict(list)
    for at, text in enumerate(train.texts):
        by_words[normal(text)].append(at)
    pairs = [(at, other) for at, text in enumerate(others.texts) for other in by_words.get(normal(text), ())]
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
