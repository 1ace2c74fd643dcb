"""Counting what papers print about datasets from the statistics of dataset artifacts."""

from collections.abc import Callable
from typing import Any

Told = dict[str, Any]  # a dataset's statistics.json, or the part of one split


def _sum(key: str) -> Callable[[list[Told]], float]:
    return lambda splits: float(sum(split[key] for split in splits))


def _positives(splits: list[Told]) -> float:
    return float(sum(split["relevant"]["count"] for split in splits))


def _per_query(splits: list[Told]) -> float:
    return _positives(splits) / _sum("queries")(splits)


def _query_length(unit: str) -> Callable[[list[Told]], float]:
    """Mean length of queries."""
    return lambda splits: _mean([(split[unit]["mean"], split["queries"]) for split in splits])


def _positive_length(unit: str) -> Callable[[list[Told]], float]:
    """Mean length of the passages of positive judgements."""
    return lambda splits: _mean([(s["relevant"][unit]["mean"], s["relevant"]["count"]) for s in splits])


def _passage_length(unit: str, which: str) -> Callable[[list[Told]], float]:
    """Mean or median length of all passages; medians of several corpora have no common one."""

    def length(passages: list[Told]) -> float:
        if which == "median" and len(passages) > 1:
            raise KeyError("median")
        return _mean([(told[unit][which], told["count"]) for told in passages])

    return length


def _mean(weighted: list[tuple[float, int]]) -> float:
    """Weighted mean."""
    return sum(value * weight for value, weight in weighted) / sum(weight for _, weight in weighted)


OF_SPLITS: dict[str, Callable[[list[Told]], float]] = {
    "queries": _sum("queries"),
    "labels": _sum("qrels"),
    "positives": _positives,
    "positives per query": _per_query,
    "characters per query": _query_length("characters"),
    "words per query": _query_length("words"),
    "characters per positive": _positive_length("characters"),
    "words per positive": _positive_length("words"),
}
OF_PASSAGES: dict[str, Callable[[list[Told]], float]] = {
    "passages": _sum("count"),
    "characters per passage, mean": _passage_length("characters", "mean"),
    "characters per passage, median": _passage_length("characters", "median"),
    "words per passage, mean": _passage_length("words", "mean"),
}
QUANTITIES = (*OF_SPLITS, *OF_PASSAGES)


def count(statistics: list[Told], split: str, quantity: str) -> float | None:
    """A quantity over one or several datasets: numbers are added up, lengths averaged over what they are lengths of.

    Args:
        statistics: of each dataset.
        split: one, several joined by `+`, or `all`.
        quantity: a name of `QUANTITIES`.
    Returns:
        None where a dataset has no such split, or none of what is measured.
    """
    try:
        if quantity in OF_PASSAGES:
            return OF_PASSAGES[quantity]([told["passages"] for told in statistics])
        names = split.split("+")
        parts = [told["splits"][name] for told in statistics for name in (told["splits"] if split == "all" else names)]
        return OF_SPLITS[quantity](parts)
    except (KeyError, TypeError, ZeroDivisionError):  # no such split, an older file, a spread of nothing
        return None
