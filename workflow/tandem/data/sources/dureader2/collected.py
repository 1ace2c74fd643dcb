"""What is kept of the questions while they stream by: labels, and 8 bytes a passage to tell repeated ones."""

from array import array
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tandem.data.sources.dureader2.records import Question
from tandem.errors import UserError


class Collected:
    """Questions with positives, and the digests of all passages.

    Attributes:
        queries: question id → (text, split), of questions with a positive passage.
        positives: question id → digests of its positive passages, each once, in order.
        without: questions without a positive passage, by split.
    """

    def __init__(self) -> None:
        self.queries: dict[str, tuple[str, str]] = {}
        self.positives: dict[str, list[bytes]] = {}
        self.without: Counter[str] = Counter()
        self._places: dict[str, str] = {}
        self._hashes = array("Q")

    def add(self, where: str, split: str, question: Question, passages: list[tuple[bytes, bool]]) -> None:
        """Keep a question and the (digest, whether positive) of its passages.

        Raises:
            UserError: a question id again.
        """
        first = self._places.setdefault(question.id, where)
        if first is not where:
            raise UserError(f"{where}: question_id {question.id} again, first at {first}; every id must be unique")
        self._hashes.extend(int.from_bytes(digest[:8], "little") for digest, _ in passages)
        positives = list(dict.fromkeys(digest for digest, positive in passages if positive))
        if positives:
            self.queries[question.id] = question.text, split
            self.positives[question.id] = positives
        else:
            self.without[split] += 1

    def first_of_equal(self) -> NDArray[np.bool_]:
        """For each passage in order whether no earlier one is the same, by 64 bits of its digest (ten million different
        passages fall together with odds of 1 to 400,000)."""
        _, rows = np.unique(np.frombuffer(self._hashes, np.uint64), return_index=True)
        first = np.zeros(len(self._hashes), np.bool_)
        first[rows] = True
        return first

    def positives_per_query(self) -> dict[str, float]:
        """The mean number of positives of a split's queries."""
        queries: Counter[str] = Counter()
        positives: Counter[str] = Counter()
        for query, (_, split) in self.queries.items():
            queries[split] += 1
            positives[split] += len(self.positives[query])
        return {split: positives[split] / count for split, count in queries.items()}
