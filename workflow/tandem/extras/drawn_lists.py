"""Reports on drawn training lists: report.json, warnings about judges that help little, and why no list was drawn."""

from collections.abc import Sequence

import numpy as np

from tandem.extras.judges import has_learned_probabilities
from tandem.negatives.list_report import NegativesReport
from tandem.retrieval.exact import Array
from tandem.stages.negatives import CandidatesParams
from tandem.store.artifact import Artifact
from tandem.store.lineage import stage_name

_PERCENTILES = (5, 25, 50, 75, 95)
_BINS = 20
# share of the pairs of a relevant passage and another that a judge must rank correctly; chance gives a half
_LEAST_WON = 0.6
_MOST_LOST = 0.05  # share of the known positives that a judge may take for sure negatives


def describe_lists(report: NegativesReport) -> dict[str, object]:
    """Return report.json: the counts, and percentiles and a histogram of the scores."""
    joined = report.join_scores()
    every = np.concatenate(list(joined.values()))
    edges = np.linspace(0, 1, _BINS + 1)
    if len(every):
        # float32 may have fewer numbers than edges from the lowest to the highest: of ties, or of a judge at chance
        edges = np.histogram_bin_edges(np.array([every.min(), every.max()], np.float64), _BINS)
    shares = {f"{value:g}": round(share, 6) for value, share in share_below(report).items()}
    return {
        "queries": report.queries,
        "lists": dict(sorted(report.lists.items())),
        "dropped": dict(sorted(report.dropped.items())),
        "too_few": report.too_few,
        "without_positive": report.without_positive,
        "without_run": report.without_run,
        **({"not_behind": report.not_behind} if report.not_behind else {}),
        **({"known_positives_below": shares} if shares else {}),
        **({"denoising": describe_denoising(report)} if report.judged_passages else {}),
        "percentiles": {name: _compute_percentiles(values) for name, values in joined.items()},
        "histogram": {
            "edges": [round(float(e), 6) for e in edges],
            **{name: np.histogram(values, edges)[0].tolist() for name, values in joined.items()},
        },
    }


def share_below(report: NegativesReport) -> dict[float, float]:
    """Return threshold → the share of the known positives that the judge scores below it; empty without judged ones."""
    judged = report.join_scores()["positives"]
    if report.denoise is None or not len(judged):
        return {}
    thresholds = [report.denoise.negative_below, report.denoise.positive_above]
    return {value: float((judged < value).mean()) for value in thresholds if value is not None}


def describe_denoising(report: NegativesReport) -> dict[str, int | float | None]:
    """Return what the judge removed, with precision and recall (null where there was nothing to count)."""
    return {
        "passages": report.judged_passages,
        "removed": report.removed,
        "near_copies": report.near_copies,
        "removed_near_copies": report.removed_near_copies,
        "precision": _share(report.removed_near_copies, report.removed),
        "recall": _share(report.removed_near_copies, report.near_copies),
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
    """Return a line for each judge that has learned nothing, else a line if they rank at chance or miss positives."""
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
    shares = share_below(report)
    anchored = report.denoise is not None and report.denoise.calibrate
    relative = [stage_name(model.key) for model in judges if _only_orders(model) and not anchored]
    text = ", ".join(
        f"{share:.0%} of the known positives are below {value:g}" for value, share in shares.items()
    )
    if shares and relative:
        cause = f"{' and '.join(relative)}, which judges, has learned to order lists, not what probability is enough"
        remedy = "calibrate: dev, or judge by loss: pointwise without distil"
        return [f"{cause}: {text}; set the thresholds by these shares, {remedy}"]
    if shares and report.denoise and shares[report.denoise.negative_below] > _MOST_LOST:
        return [f"{text}: so many relevant passages count as sure negatives; lower negative_below"]
    return []


def _only_orders(judge: Artifact) -> bool:
    """Return whether a judge has only learned to order lists; false for a published one: its training is not known."""
    train = judge.params.get("train")
    return train is not None and not has_learned_probabilities(train)


def explain_nothing_drawn(params: CandidatesParams, report: NegativesReport) -> str:
    """Return the message that no list was drawn, with what to change."""
    if report.without_run and not report.queries and not report.without_positive:
        problem = f"the source of negatives lists nothing for any of {report.without_run:,} queries"
        return f"{problem}; name another in candidates.from"
    if report.not_behind and not report.queries:
        problem = f"none of {report.not_behind:,} queries with a positive is behind candidates.behind.than"
        return f"{problem}; widen the ranks of candidates.behind, or leave it out"
    positive = report.queries - (report.without_positive if params.labels == "judge" else 0)
    remedy = "widen candidates.depth or relax denoise and below_positive"
    if not positive and params.labels == "judge":
        remedy = "lower denoise.positive_above"
    elif not positive and params.least_grade > 1:
        remedy = "lower candidates.least_grade"
    counts = f"({positive} queries have a positive, {report.without_run} no run)"
    return f"no query has a positive and a negative {counts}; {remedy}"
