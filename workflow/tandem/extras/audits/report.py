"""The command `audits`: a page and a table of the findings of a dataset's audits; their section of the report."""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, TypeAdapter

from tandem.evaluation.measures import Floats64
from tandem.evaluation.scores import measures_of, read_scores, read_summary
from tandem.report import page
from tandem.report.charts import before_after, histogram
from tandem.report.flags import parse_json, read_flags
from tandem.report.grid import Grid, csv_text
from tandem.report.sections import Addition, Extra, Section, describe_dataset
from tandem.stages.base import flatten
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_text
from tandem.store.lineage import Stage, walk

page.FOLDERS.append(Path(__file__).parent / "assets")
HEAD = ["audit", "finding", "where", "count", "share", "stage"]
SETTINGS = ("histogram", "depth", "top", "threshold")  # of summary.json: how it was searched, and drawings
PLOTTED = 2  # measures
Findings = dict[str, str]  # finding → how often, and which share that is
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
    measures: list[str]
    effects: list[Effect]
    charts: list[Markup]


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
    chart = histogram(title, bins["edges"], {"pairs": list(map(int, bins["pairs"]))}, summary.decided_by)
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


def _concerns(score: Stage, audit: Stage, stages: dict[str, Stage]) -> bool:
    dataset = score.upstream.get("dataset", "")
    derived = stages[dataset].upstream.get("similar") == audit.key if dataset in stages else False
    whole = not {"labels", "subset"} & score.upstream.keys() and "run" in score.upstream
    return whole and (derived or dataset == audit.upstream["dataset"])


def _mean(values: Floats64) -> float | None:
    return 100 * float(values.mean()) if len(values) else None


def false_negative_audits(stages: Iterable[Stage]) -> list[FalseNegativesAudit]:
    """The audits of unlabelled relevant passages among some stages."""
    by_key = {stage.key: stage for stage in stages}
    return [_false_negatives(stage, by_key) for stage in by_key.values() if stage.kind == "false_negatives"]


def _false_negatives(audit: Stage, stages: dict[str, Stage]) -> FalseNegativesAudit:
    summary = read_audit(audit.artifact)
    groups = {name: list(map(int, bins)) for name, bins in summary.histogram.items() if name != "edges" and any(bins)}
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
    return tuple(score.upstream.get(role) for role in ("run", "dataset", "subset"))


@dataclass(frozen=True)
class NoiseAudit:
    """An audit of leakage and noise: a grid for the corpus, the splits, pairs of them and the runs, with examples."""

    stage: Stage
    grids: list[Grid]
    examples: Examples
    summary: Summary


def main(words: list[str]) -> int:
    """`audits --parts JSON --out results/audits.html --table results/tables/audits.csv`.

    `--parts` is a JSON list of manifests: of audits, relabellings, and of the scores that show their effect.
    """
    flags = read_flags(words, ("parts", "out", "table"))
    parts = parse_json("parts", flags["parts"], list[str], "a JSON list of files")
    stages = walk([open_artifact(Path(part)) for part in parts])
    dataset = next(stage for stage in stages.values() if stage.kind == "dataset")
    facts = describe_dataset(json.loads(dataset.artifact.path("statistics.json").read_text(encoding="utf-8")))
    every = stages.values()
    html = page.render(
        "audits.html",
        dataset=dataset,
        facts=facts,
        stages=stages,
        noise=noise_audits(every),
        similar=similar_audits(every),
        false_negatives=false_negative_audits(every),
    )
    write_text(Path(flags["table"]), audits_csv(every))
    write_text(Path(flags["out"]), html)
    return 0


def read_audits(text: str) -> Addition:
    """`--audits`: a JSON list of manifests of audits whose findings the page has too."""
    parts = parse_json("audits", text, list[str], "a JSON list of files")

    def section(stages: dict[str, Stage]) -> Section | None:
        every = stages.values()
        audits = noise_audits(every), similar_audits(every), false_negative_audits(every)
        body = page.fragment("_audits.html", "audits", *audits)
        return Section("audits", "Audits", body, "checks") if parts else None

    return Addition([open_artifact(Path(part), verify=False) for part in parts], section)


EXTRA = Extra("audits", read_audits)


def noise_audits(stages: Iterable[Stage]) -> list[NoiseAudit]:
    """The audits of leakage and noise among some stages."""
    return [
        NoiseAudit(stage, _grids(stage.artifact), read_examples(stage.artifact), read_audit(stage.artifact))
        for stage in stages
        if stage.kind == "noise"
    ]


def _noise_lines(artifact: Artifact) -> Iterator[dict[str, str]]:
    with open(artifact.path("noise.csv"), encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _grids(artifact: Artifact) -> list[Grid]:
    """Findings below one another, places side by side; places that share a finding stand together."""
    places: dict[str, Findings] = {}
    for line in _noise_lines(artifact):
        share = f" · {100 * float(line['share']):.2f} %" if line["share"] else ""
        places.setdefault(line["where"], {})[line["finding"]] = f"{int(line['count']):,}{share}"
    groups: list[dict[str, Findings]] = []
    for where, own in places.items():
        fitting = [group for group in groups if any(own.keys() & other.keys() for other in group.values())]
        if not fitting:
            groups.append({})
        (fitting[0] if fitting else groups[-1])[where] = own
    grids = []
    for group in groups:
        findings = dict.fromkeys(finding for place in group.values() for finding in place)
        rows = [[finding, *(place.get(finding, "–") for place in group.values())] for finding in findings]
        grids.append(Grid(f"Findings: {', '.join(group)}", ["finding", *group], rows))
    return grids


def audits_csv(stages: Iterable[Stage]) -> str:
    """Every number of every audit, a line each."""
    lines: list[list[str]] = []
    for stage in stages:
        if stage.kind == "noise":
            rows = iter([[line[name] for name in HEAD[1:5]] for line in _noise_lines(stage.artifact)])
        elif stage.kind in ("similar_queries", "false_negatives"):
            rows = _summary_rows(stage.artifact)
        else:
            continue
        lines += [[stage.kind, *row, stage.key] for row in rows]
    return csv_text(HEAD, lines)


def _summary_rows(artifact: Artifact) -> Iterator[list[str]]:
    for path, value in flatten(json.loads(artifact.path("summary.json").read_text(encoding="utf-8"))).items():
        if path.split(".")[0] not in SETTINGS and isinstance(value, int | float) and not isinstance(value, bool):
            is_share = "percent" in path
            yield [path, "", "" if is_share else str(value), f"{value / 100:.6f}" if is_share else ""]
