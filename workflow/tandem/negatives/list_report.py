"""What is reported of training lists: what each rule dropped, the scores, and warnings of judges that tell nothing."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tandem.config.models import Denoise
from tandem.negatives.drawing import DrawnList, QueryPool
from tandem.retrieval.exact import Array
from tandem.stages.base import Json
from tandem.store.artifact import Artifact
from tandem.store.lineage import stage_name

_PERCENTILES = (5, 25, 50, 75, 95)
_BINS = 20
# of the pairs of a relevant passage and another, which a judge must rank right; chance has a half
_LEAST_WON = 0.6
_MOST_LOST = 0.05  # of the known positives, which a judge may take for sure negatives
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
    """report.json: passages that each rule dropped, percentiles and histograms of scores, gathered list by list.

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

    def below(self) -> dict[float, float]:
        """Threshold → the share of the known positives that the judge scores below it; empty where none is judged."""
        judged = self.all_scores()["positives"]
        if self.denoise is None or not len(judged):
            return {}
        thresholds = [self.denoise.negative_below, self.denoise.positive_above]
        return {value: float((judged < value).mean()) for value in thresholds if value is not None}

    def denoising(self) -> dict[str, int | float | None]:
        """Counts of what the judge took out, with precision and recall (null where nothing could be counted)."""
        return {
            "passages": self.judged_passages,
            "removed": self.removed,
            "near_copies": self.near_copies,
            "removed_near_copies": self.removed_near_copies,
            "precision": _share(self.removed_near_copies, self.removed),
            "recall": _share(self.removed_near_copies, self.near_copies),
        }

    def finish(self) -> dict[str, object]:
        """Return the report as plain values."""
        joined = self.all_scores()
        every = np.concatenate(list(joined.values()))
        edges = np.histogram_bin_edges(every, _BINS) if len(every) else np.linspace(0, 1, _BINS + 1)
        shares = {f"{value:g}": round(share, 6) for value, share in self.below().items()}
        return {
            "queries": self.queries,
            "lists": dict(sorted(self.lists.items())),
            "dropped": dict(sorted(self.dropped.items())),
            "too_few": self.too_few,
            "without_positive": self.without_positive,
            "without_run": self.without_run,
            **({"not_behind": self.not_behind} if self.not_behind else {}),
            **({"known_positives_below": shares} if shares else {}),
            **({"denoising": self.denoising()} if self.judged_passages else {}),
            "percentiles": {name: _compute_percentiles(values) for name, values in joined.items()},
            "histogram": {
                "edges": [round(float(e), 6) for e in edges],
                **{
                    name: np.histogram(values, edges)[0].tolist() for name, values in joined.items()
                },
            },
        }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def _compute_percentiles(values: Array) -> dict[str, float] | None:
    if not len(values):
        return None
    return {
        f"p{p}": round(float(v), 6)
        for p, v in zip(_PERCENTILES, np.percentile(values, _PERCENTILES), strict=True)
    }


def warn_of_judges(judges: Sequence[Artifact], report: NegativesReport) -> list[str]:
    """Return a line for each judge that has learned nothing, else one if they tell nothing apart or miss positives."""
    guessing = [model for model in judges if model.manifest.facts.get("at_chance")]
    lines = [
        f"{stage_name(model.key)}, which judges, stays at chance: it denoises nothing"
        for model in guessing
    ]
    if not lines and report.won < _LEAST_WON * report.compared:
        share = f"{report.won / report.compared:.0%} of the pairs, by chance in half of them"
        lines = [
            f"the judge ranks a relevant passage above another in {share}: it denoises nothing"
        ]
    return lines or warn_of_thresholds(judges, report)


def warn_of_thresholds(judges: Sequence[Artifact], report: NegativesReport) -> list[str]:
    """Return a line if the thresholds say little about the judges' scores.

    Either a judge has only learned to order lists, so that its probabilities have no zero, or too many of the known
    positives are below `negative_below`.
    """
    shares = report.below()
    anchored = report.denoise is not None and report.denoise.calibrate
    relative = [
        stage_name(model.key)
        for model in judges
        if _find_loss(model) not in (None, "pointwise") and not anchored
    ]
    text = ", ".join(
        f"{share:.0%} of the known positives are below {value:g}" for value, share in shares.items()
    )
    if shares and relative:
        cause = f"{' and '.join(relative)}, which judges, has learned to order lists, not what probability is enough"
        return [
            f"{cause}: {text}; set the thresholds by these shares, calibrate: dev, or judge by loss: pointwise"
        ]
    if shares and report.denoise and shares[report.denoise.negative_below] > _MOST_LOST:
        return [f"{text}: so many relevant passages count as sure negatives; lower negative_below"]
    return []


def _find_loss(judge: Artifact) -> str | None:
    """Return the loss that a judge's cross-encoder was trained with; None of a published one."""
    key = "supervision" if judge.params.get("objective") == "joint" else "loss"
    loss: str | None = judge.params.get("train", {}).get(key)
    return loss
