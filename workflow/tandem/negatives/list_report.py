"""Count what training lists contain and what each rule dropped; `extras.drawn_lists` puts the counts into words."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from tandem.config.models import Denoise
from tandem.negatives.drawing import DrawnList, QueryPool
from tandem.retrieval.exact import Array
from tandem.stages.base import Json

# Jaccard similarity of token trigrams from which a passage counts as a copy of a positive
NEAR_COPY = 0.5
# counts that are added up over parts
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
    """Count, list by list, what report.json contains: the passages that each rule dropped, and scores.

    Scores are the judge's probabilities if there is a judge, else the run's. Memory: four bytes a list row.

    In report.json, `compared` counts the pairs of a query's positive and another passage of its window, and `won` those
    in which the positive was judged higher. `known_positives_below` is the share of the known positives that a judge
    scores below each threshold. `denoising` compares the passages that the judge removes with near copies of a positive
    (`NEAR_COPY`), a truth that needs no judge. Precision is the share of near copies among the removed passages, recall
    the share of the near copies that are removed. A removed passage that is relevant in other words counts against the
    precision, which is therefore a lower bound.
    """

    def __init__(self, denoise: Denoise | None = None) -> None:
        self.denoise = denoise
        self.queries = self.too_few = self.without_positive = self.without_run = 0
        self.not_behind = self.won = self.compared = 0
        self.judged_passages = self.removed = self.near_copies = self.removed_near_copies = 0
        self.lists: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.scores: dict[str, list[Array]] = {"positives": [], "negatives": []}

    def list_counts(self) -> Json:
        """Return all counts, without the scores."""
        numbers = {name: getattr(self, name) for name in _ADDED}
        return {**numbers, "lists": dict(self.lists), "dropped": dict(self.dropped)}

    def add(self, counts: Json, scores: Mapping[str, Array]) -> None:
        """Add the counts and the scores of another report."""
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + counts[name])
        self.lists.update(counts["lists"])
        self.dropped.update(counts["dropped"])
        for name, own in self.scores.items():
            own.append(scores[name])

    def join_scores(self) -> dict[str, Array]:
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
        """Count the passages that the judge removes from a pool, and those of them that nearly copy a positive.

        Args:
            copies: whether each passage of the pool nearly copies a positive, by `find_near_copies`.
        """
        if self.denoise is None:
            return
        removed = ~(pool.judged < self.denoise.negative_below)
        self.judged_passages += len(removed)
        self.removed += int(removed.sum())
        self.near_copies += int(copies.sum())
        self.removed_near_copies += int((removed & copies).sum())

    def add_list(self, entry: DrawnList, expected: int | None) -> bool:
        """Count a list, and whether it has fewer negatives than `expected`; return whether it has any negative."""
        negatives = int((entry.labels == 0).sum())
        self.too_few += negatives < (expected or 1)
        if negatives:
            self.lists[entry.kind] += 1
        return negatives > 0
