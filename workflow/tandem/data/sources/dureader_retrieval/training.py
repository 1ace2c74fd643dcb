"""The training files of the release: queries and passages as texts, labelled.

A query may come back later, with a passage of another label: questions of DuReader with the same words are one query
here, and a passage that one of them calls positive is positive.
"""

import hashlib
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandem.data.sources.dureader_retrieval.lookup import mark
from tandem.data.sources.training_tsv import mentions

Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class Training:
    """Every (query, passage, label) of `dual.train.tsv` and `cross.train.tsv`: 24 bytes each.

    Attributes:
        queries: text → number, in order of appearance.
        marks: of the passages; see `lookup`.
    """

    def __init__(self, dual: Path | None, cross: Path | None) -> None:
        self.queries: dict[str, int] = {}
        asked, marks, labels = array("q"), array("q"), array("b")
        for query, _, passage, label in mentions(dual, cross):
            asked.append(self.queries.setdefault(query, len(self.queries)))
            marks.append(mark(passage))
            labels.append(label)
        self._asked, self._labels = np.array(asked, np.int64), np.array(labels, np.int64)
        self.marks = np.array(marks, np.int64)

    def pairs(self, rows: NDArray[np.int64]) -> tuple[Pairs, int]:
        """Each pair of query and passage once, the pairs of a query together, both in order of first appearance.

        Args:
            rows: of the passages in the collection, as `marks`; pairs of those that are negative are left out.
        Returns:
            (query numbers, rows, labels), and how many pairs had both labels: they are positive.
        """
        there = rows >= 0
        asked, found, labels = self._asked[there], rows[there], self._labels[there]
        width = int(found.max(initial=0)) + 1
        _, first, back = np.unique(asked * width + found, return_index=True, return_inverse=True)
        highest, lowest = np.zeros(len(first), np.int64), np.ones(len(first), np.int64)
        np.maximum.at(highest, back, labels)
        np.minimum.at(lowest, back, labels)
        order = np.lexsort((first, asked[first]))
        chosen = first[order]
        return (asked[chosen], found[chosen], highest[order]), int((highest > lowest).sum())


def training_id(query: str) -> str:
    """The id of a training query, which the release names by its text alone."""
    return f"train-{hashlib.sha1(query.encode()).hexdigest()[:16]}"
