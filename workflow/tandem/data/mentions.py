"""Collect the labelled pairs of training files, which mention the same pairs again and again."""

from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class MentionPairs(NamedTuple):
    """Training pairs: numbers of their queries, rows of their passages, labels, and numbers of their first mentions."""

    queries: Integers
    rows: Integers
    labels: Integers
    mentions: Integers


class Mentions:
    """Hold every labelled pair of training files, in their order: 9 bytes each.

    A query may come back later, with a passage of another label: questions with the same words are one query here, and
    a passage that one of them calls positive is positive.

    Attributes:
        queries: a query's name → its number, by first appearance.
    """

    def __init__(self, mentions: Iterable[tuple[str, int]]) -> None:
        """Take the name of the query and the label of each pair, 1 or 0."""
        self.queries: dict[str, int] = {}
        self._query = array("q")
        self._label = array("b")
        for query, label in mentions:
            self._query.append(self.queries.setdefault(query, len(self.queries)))
            self._label.append(label)

    def pairs(self, rows: Integers) -> tuple[MentionPairs, int]:
        """Return each pair of query and passage once, the pairs of a query together, both in order of first appearance.

        Args:
            rows: the row of each pair's passage; pairs of a negative row are left out.
        Returns:
            The pairs, and how many of them had both labels; these are positive.
        """
        present = np.flatnonzero(rows >= 0)
        queries = np.frombuffer(self._query, np.int64)[present]
        labels = np.frombuffer(self._label, np.int8)[present]
        passages = rows[present]
        # Each pair of query and passage becomes one number, so that equal pairs are found.
        width = int(passages.max(initial=0)) + 1
        _, first, back = np.unique(
            queries * width + passages, return_index=True, return_inverse=True
        )
        highest = np.zeros(len(first), np.int64)
        lowest = np.ones(len(first), np.int64)
        np.maximum.at(highest, back, labels)
        np.minimum.at(lowest, back, labels)

        # Query numbers count by first appearance, and so do the first mentions within a query.
        order = np.lexsort((first, queries[first]))
        chosen = first[order]
        pairs = MentionPairs(queries[chosen], passages[chosen], highest[order], present[chosen])
        return pairs, int((highest > lowest).sum())
