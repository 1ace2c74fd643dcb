"""What is counted of training lists: what each rule dropped, and the scores; `extras.drawn_lists` says it."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from tandem.config.models import Denoise
from tandem.negatives.drawing import DrawnList, QueryPool
from tandem.retrieval.exact import Array
from tandem.stages.base import Json

# Jaccard similarity of token trigrams from which a passage counts as a copy of a positive
NEAR_COPY = 0.5
_ADDED = (
    "queries",
    "too_few",
    "without_positive",
    "not_behind",
    "won",
    "compared",
    "judged_passages",
    "removed",
    "near_copies",
    "removed_near_copies",
)


class NegativesReport:
    """Count what report.json has: passages that each rule dropped, and scores, gathered list by list.

    Scores are the judge's probabilities where there is a judge, else the run's. Memory: four bytes a list row.
    `won` of `compared` pairs of a query's positive and another passage of its window have the positive judged higher.
    `known_positives_below` is the share of the known positives that a judge scores below each threshold.
    `denoising` holds what the judge takes out of the windows against a truth that needs no judge: passages that are
    nearly copies of a positive (`NEAR_COPY`). Precision is the share of copies among what it takes out, recall the
    share that it takes out among the copies. A relevant passage in other words lowers the precision, so it is a lower
    bound.
    """

    def __init__(self, denoise: Denoise | None = None) -> None:
        self.denoise = denoise
        self.queries = self.too_few = self.without_positive = self.without_run = 0
        self.not_behind = self.won = self.compared = 0
        self.judged_passages = self.removed = self.near_copies = self.removed_near_copies = 0
        self.lists: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.scores: dict[str, list[Array]] = {"positives": [], "negatives": []}

    def counts(self) -> Json:
        """Return all but the scores."""
        numbers = {name: getattr(self, name) for name in _ADDED}
        return {**numbers, "lists": dict(self.lists), "dropped": dict(self.dropped)}

    def add(self, counts: Json, scores: Mapping[str, Array]) -> None:
        """Add `counts` and the scores of another report."""
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + counts[name])
        self.lists.update(counts["lists"])
        self.dropped.update(counts["dropped"])
        for name, own in self.scores.items():
            own.append(scores[name])

    def all_scores(self) -> dict[str, Array]:
        """Return the scores of all pools, by kind."""
        return {
            name: np.concatenate([np.empty(0, np.float32), *own])
            for name, own in self.scores.items()
        }

    def add_pool(self, pool: QueryPool) -> None:
        """Count a query and the passages that its pool lost."""
        self.queries += 1
        self.dropped.update(pool.dropped)
        judged = np.isfinite(pool.judged).all()
        if judged:
            higher = pool.judged_positives[:, None] > pool.judged
            self.won = self.won + int(higher.sum())
            self.compared = self.compared + higher.size
        self.scores["negatives"].append(
            pool.judged if judged else pool.scores[np.isfinite(pool.scores)]
        )
        self.scores["positives"].append(pool.judged_positives[np.isfinite(pool.judged_positives)])

    def add_denoised(self, pool: QueryPool, copies: Array) -> None:
        """Count what the judge takes out of a pool, and how much of it is nearly a copy of a positive.

        `copies` says for each passage of the pool whether it is one (see `find_near_copies`).
        """
        if self.denoise is None:
            return
        removed = ~(pool.judged < self.denoise.negative_below)
        self.judged_passages += len(removed)
        self.removed += int(removed.sum())
        self.near_copies += int(copies.sum())
        self.removed_near_copies += int((removed & copies).sum())

    def add_list(self, entry: DrawnList, expected: int | None) -> bool:
        """Count a list, and whether it has fewer negatives than `expected`; return False if it has none."""
        negatives = int((entry.labels == 0).sum())
        self.too_few += negatives < (expected or 1)
        if negatives:
            self.lists[entry.kind] += 1
        return negatives > 0
