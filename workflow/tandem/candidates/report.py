"""What drawing the lists did: how many passages each rule dropped, and how positives and negatives score."""

from collections import Counter
from typing import Any

import numpy as np

from tandem.candidates.lists import TrainingList
from tandem.candidates.pool import Pool
from tandem.models.ragged import Ids

PERCENTILES = (5, 25, 50, 75, 95)
BINS = 20


class Report:
    """Counts, percentiles and histograms, gathered list by list.

    Scores are the judge's probabilities where there is a judge, else the run's. Memory: four bytes a list row.
    """

    def __init__(self, wanted: int | None) -> None:
        self.wanted = wanted
        self.queries = self.too_few = self.without_positive = self.without_run = 0
        self.lists: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.scores: dict[str, list[Ids]] = {"positives": [], "negatives": []}

    def pool(self, pool: Pool) -> None:
        """Count a query and what its pool lost."""
        self.queries += 1
        self.dropped.update(pool.dropped)
        if pool.judged is None:
            self.scores["negatives"].append(pool.scores[np.isfinite(pool.scores)])  # random passages have no score
        elif pool.judged_positives is not None:
            self.scores["negatives"].append(pool.judged)
            self.scores["positives"].append(pool.judged_positives)

    def list(self, made: TrainingList) -> bool:
        """Count a list; False if it has no negative and cannot be learned from."""
        negatives = int((made.labels == 0).sum())
        self.too_few += negatives < (self.wanted or 1)
        if negatives:
            self.lists[made.kind] += 1
        return negatives > 0

    def finish(self) -> dict[str, Any]:
        """The report as plain values."""
        joined = {name: np.concatenate(s) if s else np.empty(0, np.float32) for name, s in self.scores.items()}
        every = np.concatenate(list(joined.values()))
        edges = np.histogram_bin_edges(every, BINS) if len(every) else np.linspace(0, 1, BINS + 1)
        return {
            "queries": self.queries,
            "lists": dict(sorted(self.lists.items())),
            "dropped": dict(sorted(self.dropped.items())),
            "too_few": self.too_few,
            "without_positive": self.without_positive,
            "without_run": self.without_run,
            "percentiles": {name: _percentiles(values) for name, values in joined.items()},
            "histogram": {
                "edges": [round(float(e), 6) for e in edges],
                **{name: np.histogram(values, edges)[0].tolist() for name, values in joined.items()},
            },
        }


def _percentiles(values: Ids) -> dict[str, float] | None:
    if not len(values):
        return None
    return {f"p{p}": round(float(v), 6) for p, v in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True)}
