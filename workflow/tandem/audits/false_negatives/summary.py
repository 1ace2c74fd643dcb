"""What the pools say about a split's labels: how many candidates, how many queries with a likely false negative."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tandem.audits.false_negatives.pool import Array, Pool
from tandem.data.statistics import distribution

BINS = 20


class Summary:
    """Counts over the pools of a split, pool by pool.

    Args:
        systems: names of the runs.
        top: unlabelled passages per query that are asked about.
        threshold: the judges' verdict is positive above it; None without judges.
    """

    def __init__(self, systems: Sequence[str], top: int, threshold: float | None) -> None:
        self.systems, self.top, self.threshold = systems, top, threshold
        self.counts: Counter[str] = Counter()
        self.found, self.alone = Counter[str](), Counter[str]()
        self.sizes: list[int] = []
        self.scores: dict[str, list[Array]] = {"labelled positives": [], "unlabelled, asked about": []}

    def add(self, pool: Pool) -> None:
        """Count a ranked pool."""
        asked, unlabelled = pool.asked(self.top), pool.unlabelled
        likely = pool.scores[asked]
        self.sizes.append(len(pool.rows))
        self.counts["empty"] += not len(pool.rows)
        self.counts["unlabelled"] += int(unlabelled.sum())
        self.counts["asked"] += int(asked.sum())
        self.counts["positives"] += len(pool.positives)
        self.counts["with positive"] += len(pool.positives) > 0
        self.counts["pooled positives"] += int(np.isin(pool.rows, pool.positives).sum())
        if not math.isnan(pool.best):
            self.counts["above best positive"] += bool((likely > pool.best).any())
        if self.threshold is not None:
            likely_positive = int((likely.astype(np.float64) > self.threshold).sum())
            self.counts["above threshold"] += likely_positive > 0
            self.counts["machine positives"] += likely_positive
        for system, ranks in zip(self.systems, pool.ranks, strict=True):
            self.found[system] += int((ranks > 0).sum())
            self.alone[system] += int(((ranks > 0) & ((pool.ranks > 0).sum(axis=0) == 1)).sum())
        self.scores["labelled positives"].append(pool.scores[np.isin(pool.rows, pool.positives)])
        self.scores["unlabelled, asked about"].append(likely)

    def finish(self) -> dict[str, Any]:
        """The counts as plain values; shares are percent."""
        queries, counts = len(self.sizes), self.counts
        told: dict[str, Any] = {
            "queries": queries,
            "without_result": counts["empty"],
            "candidates": distribution(self.sizes),
            "unlabelled": counts["unlabelled"],
            "asked": counts["asked"],
            "systems": {name: {"found": self.found[name], "alone": self.alone[name]} for name in self.systems},
            "positives": {
                "labelled": counts["positives"],
                "pooled": counts["pooled positives"],
                "per_query": _mean(counts["positives"], queries),
            },
            "above_best_positive": _share(counts["above best positive"], counts["with positive"]),
        }
        if self.threshold is not None:
            told["above_threshold"] = _share(counts["above threshold"], queries)
            likely = counts["positives"] + counts["machine positives"]
            told["positives"] |= {
                "likely": counts["machine positives"],
                "per_query_with_likely": _mean(likely, queries),
            }
        return told | {"histogram": self._histogram()}

    def _histogram(self) -> dict[str, Any]:
        """Scores of labelled positives that were found, and of what is asked about."""
        joined = {name: np.concatenate([np.empty(0, np.float32), *parts]) for name, parts in self.scores.items()}
        highest = 1.0 if self.threshold is not None else float(max(s.max(initial=0) for s in joined.values()) or 1.0)
        edges = np.linspace(0, highest, BINS + 1)
        counts = {name: np.histogram(values, edges)[0].tolist() for name, values in joined.items()}
        return {"edges": [round(float(edge), 6) for edge in edges], **counts}


def _mean(total: int, count: int) -> float | None:
    return round(total / count, 4) if count else None


def _share(some: int, of: int) -> dict[str, Any]:
    """A number of queries among others, in percent."""
    return {"queries": some, "of": of, "percent": round(100 * some / of, 2) if of else None}
