"""The report's section on unlabelled passages that are likely relevant: counts, and scores before and after."""

import json
from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from tandem.reporting.charts import before_after, histogram
from tandem.scoring.scores import statistics
from tandem.store.artifact import Artifact
from tandem.store.lineage import Stage

PLOTTED = 2  # measures


def false_negatives(stages: Iterable[Stage]) -> list[dict[str, Any]]:
    """Per audit: its counts, a histogram of scores, and what relabelling changed.

    Returns:
        stage, told (summary.json), chart, relabelled: per relabelling its stage, changes.json without the single
        queries, measures and effects; see `_effects`.
    """
    by_key = {stage.key: stage for stage in stages}
    audits = [stage for stage in by_key.values() if stage.kind == "false_negatives"]
    return [
        {
            "stage": audit,
            **_read(audit.artifact),
            "relabelled": [
                {"stage": stage, "changes": _changes(stage.artifact), **_effects(stage, by_key)}
                for stage in by_key.values()
                if stage.kind == "relabel" and stage.upstream.get("pool") == audit.key
            ],
        }
        for audit in audits
    ]


def _read(audit: Artifact) -> dict[str, Any]:
    """What the audit wrote, and a drawing of its scores."""
    told = json.loads(audit.path("summary.json").read_text(encoding="utf-8"))
    bins = dict(told["histogram"])
    edges = bins.pop("edges")
    groups = {name: counts for name, counts in bins.items() if any(counts)}
    chart = histogram("Scores in the pool", edges, groups, f"score: {told['scored_by']}") if groups else None
    return {"told": told, "chart": chart}


def _changes(relabelled: Artifact) -> dict[str, Any]:
    """What the new labels change on average."""
    told: dict[str, Any] = json.loads(relabelled.path("changes.json").read_text(encoding="utf-8"))
    return {name: value for name, value in told.items() if name != "changes"}


def _effects(relabelled: Stage, stages: dict[str, Stage]) -> dict[str, Any]:
    """Every system's scores by the old labels and by the new ones (DuReader-retrieval Figure 2).

    Returns:
        measures (names), effects: per system its run's stage and its means before and after, in percent,
        (measures, 2); charts: a plot of the means for each of the first PLOTTED measures.
    """
    scores = [stage for stage in stages.values() if stage.kind == "score"]
    before = {_measured(score): score for score in scores if "labels" not in score.upstream}
    after = [score for score in scores if score.upstream.get("labels") == relabelled.key]
    pairs = [(before[_measured(score)], score) for score in after if _measured(score) in before]
    measures = list(pairs[0][1].artifact.params["measures"]) if pairs else []
    effects = []
    for old, new in pairs:
        means = [statistics(one.artifact)["mean"] for one in (old, new)]
        shown = [[100 * mean[name] if name in mean else None for mean in means] for name in measures]
        effects.append({"run": stages[new.upstream["run"]], "means": shown})
    return {"measures": measures, "effects": effects, "charts": _plots(measures, effects)}


def _plots(measures: list[str], effects: list[dict[str, Any]]) -> list[Markup]:
    """Means before and after, of the systems of which both are known."""
    runs = [effect["run"] for effect in effects]
    alone = len({run.name for run in runs}) == len(runs)
    names = {run.key: run.name if alone else run.key for run in runs}
    plots = []
    for at, measure in enumerate(measures[:PLOTTED]):
        pairs = {names[effect["run"].key]: tuple(effect["means"][at]) for effect in effects}
        known = {key: pair for key, pair in pairs.items() if None not in pair}
        plots += [before_after(f"{measure} by the old labels and the new", known, f"{measure}, %")] if known else []
    return plots


def _measured(score: Stage) -> tuple[str | None, ...]:
    """What a score is of, whatever the labels: scores of the same may be compared."""
    return tuple(score.upstream.get(role) for role in ("run", "dataset", "subset"))
