"""The command `audits`: a page and a table of the findings of a dataset's audits; their section of the report."""

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict

from tandem.data.columns import Floats64
from tandem.evaluation.scores import list_measures, read_score_summary, read_scores
from tandem.extras.audits.llm_judge import Agreement
from tandem.report.charts import draw_bars, draw_histogram
from tandem.report.commands import CsvFiles
from tandem.report.page import FOLDERS, PageTable, format_number, render_macro, render_template
from tandem.report.sections import Addition, PageSection, describe_dataset
from tandem.stages.base import flatten
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import csv_text, write_text
from tandem.store.lineage import BuiltStage, walk

FOLDERS.append(Path(__file__).parent / "assets")
HEAD = ["audit", "finding", "where", "count", "share", "stage"]
SETTINGS = ("histogram", "depth", "top", "threshold", "relevant_from")  # of summary.json: no findings
SUMMARY = "summary.json"
PLOTTED = 2  # measures
SCALES = {"relevant": "Relevant (1) or not (0)", "grades": "Grades"}
Means = list[float | None]  # of a measure in percent: before and after, or with and without; None of nothing


class Summary(BaseModel):
    """summary.json or changes.json of an audit; templates read more of its keys."""

    model_config = ConfigDict(extra="allow")

    histogram: dict[str, list[int | float]] = {}
    scored_by: str = ""
    decided_by: str = ""
    verdict: str = ""
    splits: dict[str, Any] = {}
    systems: dict[str, Any] = {}
    above_best_positive: dict[str, Any] = {}
    above_threshold: dict[str, Any] = {}
    threshold: float | None = None
    agreement: dict[str, Agreement] = {}


def read_audit(artifact: Artifact, name: str = SUMMARY) -> Summary:
    """A file of an audit's counts."""
    return Summary.model_validate_json(artifact.path(name).read_bytes())


@dataclass(frozen=True)
class Audit:
    """An audit or a relabelling as the page shows it."""

    stage: BuiltStage
    summary: Summary
    grids: list[PageTable] = field(default_factory=list)
    charts: list[Markup] = field(default_factory=list)
    effects: PageTable | None = None  # the scores that it concerns; None without any
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by finding
    relabelled: list["Audit"] = field(default_factory=list)  # of unlabelled passages, the new labels


class Audits(NamedTuple):
    """All audits among some stages."""

    noise: list[Audit]
    similar: list[Audit]
    false_negatives: list[Audit]


def audits_among(stages: dict[str, BuiltStage]) -> Audits:
    """The audits among some stages, which also hold the scores that show their effect."""

    return Audits(
        [noise(stage) for stage in stages.values() if stage.kind == "noise"],
        [similar_queries(stage, stages) for stage in stages.values() if stage.kind == "similar_queries"],
        [false_negatives(stage, stages) for stage in stages.values() if stage.kind == "false_negatives"],
    )


def audits(*, parts: CsvFiles, out: Path, table: Path) -> None:
    """Write the page and the table of the findings of a dataset's audits.

    Args:
        parts: manifests: of audits, relabellings, and of the scores that show their effect.
        out: the page.
        table: every number, as CSV.
    """
    stages = walk([open_artifact(part) for part in parts])
    dataset = next(stage for stage in stages.values() if stage.declared.holds == "collection")
    facts = describe_dataset(json.loads(dataset.artifact.path("statistics.json").read_text(encoding="utf-8")))
    html = render_template("audits.html", dataset=dataset, facts=facts, stages=stages, audits=audits_among(stages))
    write_text(table, audits_csv(stages.values()))
    write_text(out, html)


def add_audits(manifests: Sequence[Path]) -> Addition:
    """The report's section of audits."""

    def section(stages: dict[str, BuiltStage]) -> PageSection | None:
        body = render_macro("_audits.html", "findings", audits_among(stages))
        return PageSection("audits", "Audits", body, "checks") if manifests else None

    return Addition([open_artifact(path, verify=False) for path in manifests], section)


def similar_queries(audit: BuiltStage, stages: dict[str, BuiltStage]) -> Audit:
    """Training queries that are similar to others, and systems on such queries (DuReader-retrieval Table 6)."""
    summary = read_audit(audit.artifact)
    head = ["Split", "queries", "with a similar one", "%", "training queries"]
    splits = [
        [split, f"{n['queries']:,}", f"{n['similar']:,}", format_number(n["percent"]), f"{n['train_similar']:,}"]
        for split, n in summary.splits.items()
    ]
    counts = {"pairs": list(map(int, summary.histogram["pairs"]))}
    known = set(pq.read_table(audit.artifact.path("queries.parquet"))["query_id"].to_pylist())
    scores = [
        stage for stage in stages.values() if stage.declared.holds == "scores" and _concerns(stage, audit, stages)
    ]
    measures = list_measures(scores[0].artifact) if scores else []
    rows = []
    for score in scores:
        shared = [name for name in measures if name in list_measures(score.artifact)]
        queries, values = read_scores(score.artifact, shared)
        similar = np.array([query in known for query in queries], bool)
        means = {name: [_mean(v[similar]), _mean(v[~similar])] for name, v in zip(shared, values.T, strict=True)}
        removed = score.upstream["dataset"] != audit.upstream["dataset"]
        among = f"{'removed' if removed else 'trained on'}, {similar.sum():,} · {(~similar).sum():,} queries"
        rows.append((stages[score.upstream["run"]], [among], [means.get(name, [None, None]) for name in measures]))
    title, sides = "Scores on similar queries and on the others", ("similar", "others")
    return Audit(
        audit,
        summary,
        [PageTable("Queries with a similar training query", head, splits)],
        [draw_histogram("Scores of the proposed pairs", summary.histogram["edges"], counts, summary.decided_by)],
        _effects(title, sides, ["similar queries"], measures, rows),
        json.loads(audit.artifact.path("examples.json").read_bytes()),
    )


def _concerns(score: BuiltStage, audit: BuiltStage, stages: dict[str, BuiltStage]) -> bool:
    dataset = score.upstream.get("dataset", "")
    derived = dataset in stages and stages[dataset].upstream.get("similar") == audit.key
    whole = not {"labels", "subset", "others"} & score.upstream.keys() and "run" in score.upstream
    return whole and (derived or dataset == audit.upstream["dataset"])


def _mean(values: Floats64) -> float | None:
    return 100 * float(values.mean()) if len(values) else None


def _effects(
    title: str,
    sides: tuple[str, str],
    more: list[str],
    measures: list[str],
    rows: Sequence[tuple[BuiltStage, list[str], list[Means]]],
) -> PageTable | None:
    """A row a run: cells under the heads `more`, and both sides of each measure; None without any run."""
    head = ["Run", *more, *(f"{measure}, {side}" for measure in measures for side in sides)]
    cells = [[run.key, *own, *(format_number(mean) for pair in means for mean in pair)] for run, own, means in rows]
    links = {(at, 0): f"#stage-{run.key}" for at, (run, _, _) in enumerate(rows)}
    return PageTable(title, head, cells, links=links) if rows else None


def false_negatives(audit: BuiltStage, stages: dict[str, BuiltStage]) -> Audit:
    """Unlabelled passages that are likely relevant, and what new labels changed."""
    summary = read_audit(audit.artifact)
    groups = {name: list(map(int, bins)) for name, bins in summary.histogram.items() if name != "edges" and any(bins)}
    unit = f"score: {summary.scored_by}"
    verdicts = [("that scores above their best positive", summary.above_best_positive)]
    if summary.above_threshold:
        verdicts.insert(0, (f"that scores above {summary.threshold:g}", summary.above_threshold))
    head = ["Queries with an unlabelled passage", "queries", "of", "%"]
    likely = [[name, f"{n['queries']:,}", f"{n['of']:,}", format_number(n["percent"])] for name, n in verdicts]
    systems = [[name, f"{n['found']:,}", f"{n['alone']:,}"] for name, n in summary.systems.items()]
    grids = [
        PageTable("Queries with an unlabelled passage that is likely relevant", head, likely),
        PageTable("What each system found", ["System", "passages found", "by it alone"], systems),
    ]
    charts = [draw_histogram("Scores in the pool", summary.histogram["edges"], groups, unit)] if groups else []
    of_pool = [relabelling(stage, stages) for stage in stages.values() if stage.upstream.get("pool") == audit.key]
    return Audit(audit, summary, grids, charts, relabelled=of_pool)


def relabelling(relabelled: BuiltStage, stages: dict[str, BuiltStage]) -> Audit:
    """New labels, and every system's scores by the old labels and by the new (DuReader-retrieval Figure 2)."""
    scores = [stage for stage in stages.values() if stage.declared.holds == "scores"]
    before = {_target(score): score for score in scores if "labels" not in score.upstream}
    after = [score for score in scores if score.upstream.get("labels") == relabelled.key]
    pairs = [(before[_target(score)], score) for score in after if _target(score) in before]
    measures = list_measures(pairs[0][1].artifact) if pairs else []
    changes = read_audit(relabelled.artifact, "changes.json")
    by = "" if changes.verdict == "annotators" else ", machine-made"
    rows: list[tuple[BuiltStage, list[str], list[Means]]] = []
    for pair in pairs:
        sides = [read_score_summary(score.artifact) for score in pair]
        counted = " · ".join(f"{count:,}" for count in dict.fromkeys(side.queries for side in sides))
        percents: list[Means] = [[100 * s.mean[name] if name in s.mean else None for s in sides] for name in measures]
        rows.append((stages[pair[1].upstream["run"]], [counted], percents))
    what = f"by the old labels and the new{by}"
    effects = _effects(f"Scores {what}", ("before", f"after{by}"), ["queries"], measures, rows)
    charts = []
    unique = len({run.name for run, _, _ in rows}) == len(rows)
    for at, measure in enumerate(measures[:PLOTTED]):
        known = {
            run.name if unique else run.key: {"before": old, "after": new}
            for run, _, percents in rows
            for old, new in [percents[at]]
            if old is not None and new is not None
        }
        charts += [draw_bars(f"{measure} {what}", known, f"{measure}, %")] if known else []
    agreements = read_audit(relabelled.artifact).agreement if _has_summary(relabelled) else {}
    grids = [_agreement_grid(SCALES[name], own) for name, own in agreements.items() if own.pairs]
    return Audit(relabelled, changes, grids, charts, effects)


def _agreement_grid(title: str, agreement: Agreement) -> PageTable:
    undefined = "κ is not defined, people gave one label alone"
    kappa = undefined if agreement.kappa is None else f"Cohen's κ {agreement.kappa:.2f}"
    same = f"the same label for {format_number(agreement.percent)} % of {agreement.pairs:,} pairs"
    rows = [[f"people: {at}", *(f"{count:,}" for count in row)] for at, row in enumerate(agreement.table)]
    return PageTable(f"{title}: {same}; {kappa}", ["", *(f"model: {at}" for at in range(len(rows)))], rows)


def _target(score: BuiltStage) -> tuple[str | None, ...]:
    return tuple(score.upstream.get(role) for role in ("run", "dataset", "subset", "others"))


def _noise_lines(stage: BuiltStage) -> Iterable[dict[str, str]]:
    return csv.DictReader(stage.artifact.path("noise.csv").read_text(encoding="utf-8").splitlines())


def noise(stage: BuiltStage) -> Audit:
    """Leakage and noise: findings below one another, places side by side; those that share a finding stand together."""
    places: dict[str, dict[str, str]] = {}  # place → finding → how often, and which share that is
    for line in _noise_lines(stage):
        share = f" · {100 * float(line['share']):.2f} %" if line["share"] else ""
        places.setdefault(line["where"], {})[line["finding"]] = f"{int(line['count']):,}{share}"
    groups: list[dict[str, dict[str, str]]] = []
    for where, own in places.items():
        fitting = (group for group in groups if any(own.keys() & other.keys() for other in group.values()))
        if (group := next(fitting, None)) is None:
            groups.append(group := {})
        group[where] = own
    grids = []
    for group in groups:
        findings = dict.fromkeys(finding for place in group.values() for finding in place)
        rows = [[finding, *(place.get(finding, "–") for place in group.values())] for finding in findings]
        grids.append(PageTable(f"Findings: {', '.join(group)}", ["finding", *group], rows))
    examples = json.loads(stage.artifact.path("examples.json").read_bytes())
    return Audit(stage, read_audit(stage.artifact), grids, examples=examples)


def _has_summary(stage: BuiltStage) -> bool:
    return SUMMARY in stage.artifact.manifest.files


def audits_csv(stages: Iterable[BuiltStage]) -> str:
    """Every number of every audit, a line each."""
    lines: list[list[str]] = []
    for stage in stages:
        rows: Iterable[list[str]] = ()
        if stage.kind == "noise":
            rows = ([line[name] for name in HEAD[1:5]] for line in _noise_lines(stage))
        elif stage.declared.box == "Audits" and _has_summary(stage):
            values = flatten(json.loads(stage.artifact.path(SUMMARY).read_bytes()))
            rows = (
                [path, "", "", f"{value / 100:.6f}"] if "percent" in path else [path, "", str(value), ""]
                for path, value in values.items()
                if path.split(".")[0] not in SETTINGS and type(value) in (int, float)  # True is no number here
            )
        lines += [[stage.kind, *row, stage.key] for row in rows]
    return csv_text(HEAD, lines)
