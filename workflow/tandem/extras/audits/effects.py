"""Similar training queries and likely false negatives on the page: their counts, and scores with and without them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow.parquet as pq
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, TypeAdapter

from tandem.evaluation.measures import Floats64
from tandem.evaluation.scores import measures_of, read_scores, read_summary
from tandem.report.charts import before_after, histogram
from tandem.store.artifact import Artifact
from tandem.store.lineage import Stage

PLOTTED = 2  # measures
Means = list[float | None]  # in percent, with and without; None where there is nothing to average
Examples = dict[str, list[dict[str, object]]]  # finding → examples


class Summary(BaseModel):
    """summary.json or changes.json of an audit; templates read more of its keys."""

    model_config = ConfigDict(extra="allow")

    histogram: dict[str, list[int | float]] = {}
    scored_by: str = ""
    decided_by: str = ""


def read_audit(artifact: Artifact, name: str = "summary.json") -> Summary:
    """A file of an audit's counts."""
    return Summary.model_validate_json(artifact.path(name).read_bytes())


def read_examples(artifact: Artifact) -> Examples:
    """examples.json of an audit."""
    return TypeAdapter(Examples).validate_json(artifact.path("examples.json").read_bytes())


@dataclass(frozen=True)
class Effect:
    """A system's run and its means of each measure, before and after, or with and without."""

    run: Stage
    means: list[Means]


@dataclass(frozen=True)
class SimilarEffect(Effect):
    """A system on the queries with a similar training query and on the others (DuReader-retrieval Table 6).

    `removed` says whether its dataset lacks the similar queries; `queries` how many there are of each.
    """

    removed: bool
    queries: list[int]


@dataclass(frozen=True)
class SimilarAudit:
    """An audit of similar queries: counts, examples, a histogram of the pairs' scores, and the systems it concerns."""

    stage: Stage
    summary: Summary
    examples: Examples
    chart: Markup
    measures: list[str]
    effects: list[SimilarEffect]


@dataclass(frozen=True)
class Relabelling:
    """New labels: changes.json, and every system's scores by the old labels and by the new (DuReader Figure 2)."""

    stage: Stage
    changes: Summary
    measures: list[str] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    charts: list[Markup] = field(default_factory=list)


@dataclass(frozen=True)
class FalseNegativesAudit:
    """An audit of unlabelled passages that are likely relevant: counts, a histogram of scores, relabellings."""

    stage: Stage
    summary: Summary
    chart: Markup | None
    relabelled: list[Relabelling]


def similar_audits(stages: Iterable[Stage]) -> list[SimilarAudit]:
    """The audits of similar queries among some stages."""
    by_key = {stage.key: stage for stage in stages}
    return [_similar(stage, by_key) for stage in by_key.values() if stage.kind == "similar_queries"]


def _similar(audit: Stage, stages: dict[str, Stage]) -> SimilarAudit:
    summary = read_audit(audit.artifact)
    bins = summary.histogram
    title = "Scores of the proposed pairs"
    chart = histogram(title, bins["edges"], {"pairs": _counts(bins["pairs"])}, summary.decided_by)
    known = set(pq.read_table(audit.artifact.path("queries.parquet"))["query_id"].to_pylist())
    scores = [stage for stage in stages.values() if stage.kind == "score" and _concerns(stage, audit, stages)]
    measures = measures_of(scores[0].artifact) if scores else []
    effects = []
    for score in scores:
        shared = [name for name in measures if name in measures_of(score.artifact)]
        queries, values = read_scores(score.artifact, shared)
        similar = np.array([query in known for query in queries], bool)
        means = {name: [_mean(v[similar]), _mean(v[~similar])] for name, v in zip(shared, values.T, strict=True)}
        effects.append(
            SimilarEffect(
                stages[score.upstream["run"]],
                [means.get(name, [None, None]) for name in measures],
                removed=score.upstream["dataset"] != audit.upstream["dataset"],
                queries=[int(similar.sum()), int((~similar).sum())],
            )
        )
    return SimilarAudit(audit, summary, read_examples(audit.artifact), chart, measures, effects)


def _counts(bins: Sequence[float]) -> list[int]:
    return [int(count) for count in bins]


def _concerns(score: Stage, audit: Stage, stages: dict[str, Stage]) -> bool:
    """Whether a score is of the audited dataset, or of the same without the similar queries, on its own labels."""
    dataset = score.upstream.get("dataset", "")
    derived = stages[dataset].upstream.get("similar") == audit.key if dataset in stages else False
    whole = not {"labels", "subset"} & score.upstream.keys() and "run" in score.upstream
    return whole and (derived or dataset == audit.upstream["dataset"])


def _mean(values: Floats64) -> float | None:
    """The mean in percent; None of nothing."""
    return 100 * float(values.mean()) if len(values) else None


def false_negative_audits(stages: Iterable[Stage]) -> list[FalseNegativesAudit]:
    """The audits of unlabelled relevant passages among some stages."""
    by_key = {stage.key: stage for stage in stages}
    return [_false_negatives(stage, by_key) for stage in by_key.values() if stage.kind == "false_negatives"]


def _false_negatives(audit: Stage, stages: dict[str, Stage]) -> FalseNegativesAudit:
    summary = read_audit(audit.artifact)
    groups = {name: _counts(bins) for name, bins in summary.histogram.items() if name != "edges" and any(bins)}
    edges, unit = summary.histogram["edges"], f"score: {summary.scored_by}"
    chart = histogram("Scores in the pool", edges, groups, unit) if groups else None
    relabelled = [
        _relabelling(stage, stages)
        for stage in stages.values()
        if stage.kind == "relabel" and stage.upstream.get("pool") == audit.key
    ]
    return FalseNegativesAudit(audit, summary, chart, relabelled)


def _relabelling(relabelled: Stage, stages: dict[str, Stage]) -> Relabelling:
    scores = [stage for stage in stages.values() if stage.kind == "score"]
    before = {_target(score): score for score in scores if "labels" not in score.upstream}
    after = [score for score in scores if score.upstream.get("labels") == relabelled.key]
    pairs = [(before[_target(score)], score) for score in after if _target(score) in before]
    measures = measures_of(pairs[0][1].artifact) if pairs else []
    effects = []
    for pair in pairs:
        means = [read_summary(score.artifact).mean for score in pair]
        percents = [[100 * mean[name] if name in mean else None for mean in means] for name in measures]
        effects.append(Effect(stages[pair[1].upstream["run"]], percents))
    changes = read_audit(relabelled.artifact, "changes.json")
    return Relabelling(relabelled, changes, measures, effects, _plots(measures, effects))


def _plots(measures: list[str], effects: list[Effect]) -> list[Markup]:
    """Means before and after, of the systems of which both are known, by the first PLOTTED measures."""
    runs = [effect.run for effect in effects]
    unique = len({run.name for run in runs}) == len(runs)
    plots = []
    for at, measure in enumerate(measures[:PLOTTED]):
        known: dict[str, tuple[float, float]] = {}
        for effect in effects:
            before, after = effect.means[at]
            if before is not None and after is not None:
                known[effect.run.name if unique else effect.run.key] = before, after
        plots += [before_after(f"{measure} by the old labels and the new", known, f"{measure}, %")] if known else []
    return plots


def _target(score: Stage) -> tuple[str | None, ...]:
    """What a score is of, whatever the labels: scores of the same may be compared."""
    return tuple(score.upstream.get(role) for role in ("run", "dataset", "subset"))
