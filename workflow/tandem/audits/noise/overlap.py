"""Overlap of training and evaluation: positives of dev and test that training has shown already."""

from dataclasses import dataclass

import numpy as np

from tandem.audits.noise.duplicates import Duplicates
from tandem.audits.noise.labels import Split
from tandem.data.rows import Rows


@dataclass(frozen=True)
class Overlap:
    """Positives of a split against those of train; a positive is in the first list that it fits.

    Attributes:
        positives: rows of the split's distinct positives in the corpus.
        shared: those that are positives of train themselves.
        exact: (positive, training positive) with the same text.
        near: (positive, training positive) that are near-duplicates.
        queries: of the split, with at least one of these as a positive.
    """

    positives: Rows
    shared: Rows
    exact: list[tuple[int, int]]
    near: list[tuple[int, int]]
    queries: int

    def counts(self) -> dict[str, int]:
        """Numbers as the summary gives them."""
        lists = {name: len(getattr(self, name)) for name in ("positives", "shared", "exact", "near")}
        return {**lists, "queries": self.queries}


def overlap(train: Split, split: Split, duplicates: Duplicates) -> Overlap:
    """Compare the positives of a split with those of the training split."""
    shown, asked = train.positive_rows(), split.positive_rows()
    shared = np.intersect1d(asked, shown)
    first = duplicates.first
    # the training positive that stands for a text: its first one
    texts = dict(zip(first[shown[::-1]].tolist(), shown[::-1].tolist(), strict=True))
    rest = np.setdiff1d(asked, shared).tolist()
    exact = [(row, texts[first[row]]) for row in rest if first[row] in texts]
    left = np.setdiff1d(rest, [row for row, _ in exact]).astype(np.int64)
    like: dict[int, int] = {}
    for one, other in zip(*duplicates.near(first[left].astype(np.int64)), strict=True):
        if other in texts:
            like[int(one)] = min(texts[other], like.get(int(one), texts[other]))
    near = [(row, like[first[row]]) for row in left.tolist() if first[row] in like]
    known = {*shared.tolist(), *(row for row, _ in exact + near)}
    queries = sum(not known.isdisjoint(split.known(query)) for query in split.judged)
    return Overlap(asked, shared, exact, near, queries)
