"""What a dataset is like: counts, lengths, positives and repetitions. Words are what white space separates."""

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from tandem.data.validate import Hashes


def spread(values: Iterable[int]) -> dict[str, float] | None:
    """Mean, median, 90th percentile and maximum, rounded to two digits; None of nothing."""
    numbers = np.asarray(values if isinstance(values, array) else list(values), np.int64)
    if numbers.size == 0:
        return None
    return {
        "mean": round(float(numbers.mean()), 2),
        "median": round(float(np.median(numbers)), 2),
        "p90": round(float(np.percentile(numbers, 90)), 2),
        "max": int(numbers.max()),
    }


class CorpusStatistics:
    """Lengths and repetitions of passages as they pass; 16 bytes a passage, 16 more to count repetitions."""

    def __init__(self) -> None:
        self._words, self._characters = array("I"), array("I")
        self._texts = Hashes()
        self.empty = 0

    def add(self, texts: list[str]) -> None:
        """Count passages by their contents."""
        words = [len(text.split()) for text in texts]
        self._words.extend(words)
        self._characters.extend(map(len, texts))
        self._texts.add(texts)
        self.empty += words.count(0)

    def summary(self) -> dict[str, Any]:
        """Number, empty ones, repetitions of an earlier text, words and characters of passages."""
        return {
            "count": len(self._words),
            "empty": self.empty,
            "duplicates": self._texts.repeats(),
            "words": spread(self._words),
            "characters": spread(self._characters),
        }


def split_statistics(
    queries: Iterable[tuple[str, str, str]], judged: Iterable[tuple[str, str, int, str]]
) -> dict[str, dict[str, Any]]:
    """Split → number and words of its queries, its qrels, positives per query and queries without a positive.

    Args:
        queries: (query id, text, split).
        judged: (query id, document id, relevance, split).
    """
    words: dict[str, list[int]] = {}
    positives: dict[str, dict[str, int]] = {}
    qrels: dict[str, int] = {}
    for query, text, split in queries:
        words.setdefault(split, []).append(len(text.split()))
        positives.setdefault(split, {})[query] = 0
    for query, _, relevance, split in judged:
        qrels[split] = qrels.get(split, 0) + 1
        positives[split][query] += relevance > 0
    return {
        split: {
            "queries": len(counts),
            "words": spread(counts),
            "qrels": qrels.get(split, 0),
            "positives": spread(positives[split].values()),
            "without_positive": sum(n == 0 for n in positives[split].values()),
        }
        for split, counts in words.items()
    }
