"""The command `audits`: a page and a table of the findings of a dataset's audits, and their section of the report."""

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

from tandem.contrib.audits.agreement import Agreement
from tandem.contrib.audits.packages import ReviewSummary
from tandem.data.columns import Floats64
from tandem.evaluation.measure_names import is_share
from tandem.evaluation.scores import list_measures, read_score_summary, read_scores
from tandem.extras.report.charts import draw_bars, draw_histogram
from tandem.extras.report.page import FOLDERS, render_macro, render_template
from tandem.extras.report.sections import Addition, PageSection, adds_to_report, describe_dataset
from tandem.report.grids import PageTable, format_number
from tandem.report.scored import scale_value
from tandem.report.table_commands import CsvFiles
from tandem.stages.base import flatten
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import csv_text, write_text
from tandem.store.lineage import BuiltStage, walk

FOLDERS.append(Path(__file__).parent / "assets")
_HEAD = ["audit", "finding", "where", "count", "share", "stage"]
# keys of summary.json that are not findings
_SETTINGS = ("histogram", "depth", "top", "threshold", "relevant_from", "rule")
_SUMMARY_FILE = "summary.json"
_PLOTTED_MEASURES = 2  # measures in the plots
# Agreement → its title, and the judges whose labels are its rows and columns.
_SCALES = {
    "relevant": ("Relevant (1) or not (0)", "people", "model"),
    "grades": ("Grades", "people", "model"),
    "reviewed": (
        "Relevant (1) or not (0), of the pairs that were reviewed",
        "annotators",
        "reviewers",
    ),
}
Counts = dict[str, int | float | None]  # name → count, or share in percent: None of nothing
# values of a measure, in percent if it is a share: before and after, or with and without; None without queries
BothMeans = list[float | None]


class AuditSummary(BaseModel):
    """summary.json or changes.json of an audit; templates also read other keys of it."""

    model_config = ConfigDict(extra="allow")

    histogram: dict[str, list[int | float]] = {}
    scored_by: str = ""
    decided_by: str = ""
    verdict: str = ""
    splits: dict[str, Counts] = {}
    systems: dict[str, Counts] = {}
    above_best_positive: Counts = {}
    above_threshold: Counts = {}
    threshold: float | None = None
    agreement: dict[str, Agreement] = {}
    removed_positives: int = 0
    # packages that have passed their review; None if there was no review
    accepted: int | None = None


def read_audit(artifact: Artifact, name: str = _SUMMARY_FILE) -> AuditSummary:
    """Read a file of an audit's counts."""
    return AuditSummary.model_validate_json(artifact.path(name).read_bytes())


@dataclass(frozen=True)
class AuditView:
    """An audit or a relabelling as it is shown on the page."""

    stage: BuiltStage
    summary: AuditSummary
    grids: list[PageTable] = field(default_factory=list)
    charts: list[Markup] = field(default_factory=list)
    effects: PageTable | None = None  # effects on scores; None without any
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by finding
    # for an audit of unlabelled passages: its new labels
    relabelled: list["AuditView"] = field(default_factory=list)


class AuditViews(NamedTuple):
    """All audits among some stages."""

    noise: list[AuditView]
    similar: list[AuditView]
    false_negatives: list[AuditView]


def collect_audits(stages: dict[str, BuiltStage]) -> AuditViews:
    """Return the audits among some stages; the stages also include the scores that show the audits' effect."""

    return AuditViews(
        [show_noise(stage) for stage in stages.values() if stage.kind == "noise"],
        [
            show_similar_queries(stage, stages)
            for stage in stages.values()
            if stage.kind == "similar_queries"
        ],
        [
            show_false_negatives(stage, stages)
            for stage in stages.values()
            if stage.kind == "false_negatives"
        ],
    )


def write_audits(*, parts: CsvFiles, out: Path, table: Path) -> None:
    """Write the page and the table of the findings of a dataset's audits.

    Args:
        parts: manifests: of audits, relabellings, and of the scores that show their effect.
        out: the page.
        table: every number, as CSV.
    """
    stages = walk([open_artifact(part) for part in parts])
    dataset = next(stage for stage in stages.values() if stage.declared.holds == "collection")
    facts = describe_dataset(
        json.loads(dataset.artifact.path("statistics.json").read_text(encoding="utf-8"))
    )
    html = render_template(
        "audits.html", dataset=dataset, facts=facts, stages=stages, audits=collect_audits(stages)
    )
    write_text(table, write_audits_csv(stages.values()))
    write_text(out, html)


@adds_to_report("audits")
def add_audits(manifests: Sequence[str]) -> Addition:
    """Add the report's section of audits."""

    def section(stages: dict[str, BuiltStage]) -> PageSection | None:
        body = render_macro("_audits.html", "findings", collect_audits(stages))
        return PageSection("audits", "Audits", body, "checks") if manifests else None

    return Addition([open_artifact(Path(path), verify=False) for path in manifests], section)


def show_similar_queries(audit: BuiltStage, stages: dict[str, BuiltStage]) -> AuditView:
    """Show training queries that are similar to others, and systems on those others (DuReader-retrieval Table 6)."""
    summary = read_audit(audit.artifact)
    head = ["Split", "queries", "with a similar one", "%", "training queries"]
    splits = []
    for split, counts in summary.splits.items():
        queries, similar = f"{counts['queries']:,}", f"{counts['similar']:,}"
        splits.append(
            [
                split,
                queries,
                similar,
                format_number(counts["percent"]),
                f"{counts['train_similar']:,}",
            ]
        )
    pairs = {"pairs": list(map(int, summary.histogram["pairs"]))}

    known = set(pq.read_table(audit.artifact.path("queries.parquet"))["query_id"].to_pylist())
    scores = [stage for stage in stages.values() if stage.declared.holds == "scores"]
    scores = [stage for stage in scores if _is_concerned(stage, audit, stages)]
    measures = list_measures(scores[0].artifact) if scores else []
    rows = []
    for score in scores:
        shared = [name for name in measures if name in list_measures(score.artifact)]
        ids, values = read_scores(score.artifact, shared)
        is_similar = np.array([query in known for query in ids], bool)
        means: dict[str, BothMeans] = {name: [None, None] for name in measures}
        for name, own in zip(shared, values.T, strict=True):
            means[name] = [_average(own[is_similar], name), _average(own[~is_similar], name)]
        removed = score.upstream["dataset"] != audit.upstream["dataset"]
        sizes = f"{is_similar.sum():,} · {(~is_similar).sum():,} queries"
        among = f"{'removed' if removed else 'trained on'}, {sizes}"
        rows.append((stages[score.upstream["run"]], [among], list(means.values())))

    title, sides = "Scores on similar queries and on the others", ("similar", "others")
    return AuditView(
        audit,
        summary,
        grids=[PageTable("Queries with a similar training query", head, splits)],
        charts=[
            draw_histogram(
                "Scores of the proposed pairs",
                summary.histogram["edges"],
                pairs,
                summary.decided_by,
            )
        ],
        effects=_tabulate_effects(title, sides, ["similar queries"], measures, rows),
        examples=json.loads(audit.artifact.path("examples.json").read_bytes()),
    )


def _is_concerned(score: BuiltStage, audit: BuiltStage, stages: dict[str, BuiltStage]) -> bool:
    dataset = score.upstream.get("dataset", "")
    derived = dataset in stages and stages[dataset].upstream.get("similar") == audit.key
    whole = not {"labels", "subset", "others"} & score.upstream.keys() and "run" in score.upstream
    return whole and (derived or dataset == audit.upstream["dataset"])


def _average(values: Floats64, measure: str) -> float | None:
    return scale_value(float(values.mean()), measure) if len(values) else None


def _tabulate_effects(
    title: str,
    sides: tuple[str, str],
    more: list[str],
    measures: list[str],
    rows: Sequence[tuple[BuiltStage, list[str], list[BothMeans]]],
) -> PageTable | None:
    """Return a row per run: cells under the heads `more`, and both sides of each measure; None without any run."""
    head = ["Run", *more, *(f"{measure}, {side}" for measure in measures for side in sides)]
    cells = [
        [run.key, *own, *(format_number(mean) for pair in means for mean in pair)]
        for run, own, means in rows
    ]
    links = {(at, 0): f"#stage-{run.key}" for at, (run, _, _) in enumerate(rows)}
    return PageTable(title, head, cells, links=links) if rows else None


def show_false_negatives(audit: BuiltStage, stages: dict[str, BuiltStage]) -> AuditView:
    """Show unlabelled passages that are likely relevant, and the changes by new labels."""
    summary = read_audit(audit.artifact)
    verdicts = []
    if summary.above_threshold:
        verdicts.append((f"that scores above {summary.threshold:g}", summary.above_threshold))
    verdicts.append(("that scores above their best positive", summary.above_best_positive))
    likely = []
    for name, counts in verdicts:
        likely.append(
            [name, f"{counts['queries']:,}", f"{counts['of']:,}", format_number(counts["percent"])]
        )
    head = ["Queries with an unlabelled passage", "queries", "of", "%"]

    systems = [
        [name, f"{counts['found']:,}", f"{counts['alone']:,}"]
        for name, counts in summary.systems.items()
    ]
    grids = [
        PageTable("Queries with an unlabelled passage that is likely relevant", head, likely),
        PageTable("What each system found", ["System", "passages found", "by it alone"], systems),
    ]

    histogram = {
        name: list(map(int, bins)) for name, bins in summary.histogram.items() if name != "edges"
    }
    histogram = {name: bins for name, bins in histogram.items() if any(bins)}
    charts = []
    if histogram:
        unit = f"score: {summary.scored_by}"
        charts.append(
            draw_histogram("Scores in the pool", summary.histogram["edges"], histogram, unit)
        )

    relabelled = [stage for stage in stages.values() if stage.upstream.get("pool") == audit.key]
    views = [show_relabelling(stage, stages) for stage in relabelled]
    return AuditView(audit, summary, grids, charts, relabelled=views)


def show_relabelling(relabelled: BuiltStage, stages: dict[str, BuiltStage]) -> AuditView:
    """Show new labels, and every system's scores by the old labels and by the new (DuReader-retrieval Figure 2)."""
    scores = [stage for stage in stages.values() if stage.declared.holds == "scores"]
    before = {_identify_target(score): score for score in scores if "labels" not in score.upstream}
    after = [score for score in scores if score.upstream.get("labels") == relabelled.key]
    pairs = [
        (before[_identify_target(score)], score)
        for score in after
        if _identify_target(score) in before
    ]
    measures = list_measures(pairs[0][1].artifact) if pairs else []
    changes = read_audit(relabelled.artifact, "changes.json")
    by = "" if changes.verdict == "annotators" else ", machine-made"
    rows: list[tuple[BuiltStage, list[str], list[BothMeans]]] = []
    for old, new in pairs:
        sides = [read_score_summary(score.artifact) for score in (old, new)]
        counted = " · ".join(
            f"{count:,}" for count in dict.fromkeys(side.queries for side in sides)
        )
        means: list[BothMeans] = []
        for name in measures:
            means.append(
                [
                    scale_value(side.mean[name], name) if name in side.mean else None
                    for side in sides
                ]
            )
        rows.append((stages[new.upstream["run"]], [counted], means))
    labels = f"by the old labels and the new{by}"
    effects = _tabulate_effects(
        f"Scores {labels}", ("before", f"after{by}"), ["queries"], measures, rows
    )

    charts = []
    has_unique_names = len({run.name for run, _, _ in rows}) == len(rows)
    for position, measure in enumerate(measures[:_PLOTTED_MEASURES]):
        bars = {}
        for run, _, means in rows:
            before_mean, after_mean = means[position]
            if before_mean is not None and after_mean is not None:
                name = run.name if has_unique_names else run.key
                bars[name] = {"before": before_mean, "after": after_mean}
        if bars:
            unit = f"{measure}, %" if is_share(measure) else measure
            charts.append(draw_bars(f"{measure} {labels}", bars, unit))

    agreements = read_audit(relabelled.artifact).agreement if _has_summary(relabelled) else {}
    grids = [_tabulate_agreement(name, own) for name, own in agreements.items() if own.pairs]
    if changes.accepted is not None:
        grids.insert(0, tabulate_packages(read_audit_review(relabelled.artifact)))
    return AuditView(relabelled, changes, grids, charts, effects)


def read_audit_review(artifact: Artifact) -> ReviewSummary:
    """Read the result of the review of annotators' packages."""
    return ReviewSummary.model_validate_json(artifact.path(_SUMMARY_FILE).read_bytes())


def tabulate_packages(summary: ReviewSummary) -> PageTable:
    """Return a row per package: its reviewers' accuracies, their mean; the title shows whether A.3's rule is met."""
    names = [f"Reviewer {number}, %" for number in range(1, summary.rule.reviewers + 1)]
    rows = []
    for name, package in summary.packages.items():
        shares = package.reviewers or [None] * summary.rule.reviewers
        numbers = [f"{package.pairs:,}", f"{package.answered:,}", str(package.round)]
        accuracies = [format_number(share) for share in (*shares, package.percent)]
        rows.append([name, *numbers, *accuracies, package.state])
    head = ["Package", "pairs", "annotated", "round", *names, "mean, %", "state"]
    return PageTable(conclude_review(summary), head, rows, align=f"l{'r' * (len(head) - 2)}l")


def conclude_review(summary: ReviewSummary) -> str:
    """Return whether the rule of DuReader-retrieval A.3 is met, in a line."""
    rule = summary.rule
    asked = f"accuracy from {100 * rule.accuracy:g} % by {rule.reviewers} reviewers of {rule.pairs:,} pairs each"
    passed = f"{summary.accepted:,} of {len(summary.packages):,} packages have passed"
    return f"The rule is {'met' if summary.is_met else 'not met'}: {passed} ({asked})"


def _tabulate_agreement(name: str, agreement: Agreement) -> PageTable:
    title, first, second = _SCALES[name]
    undefined = f"κ is not defined, {first} gave one label alone"
    kappa = undefined if agreement.kappa is None else f"Cohen's κ {agreement.kappa:.2f}"
    same = f"the same label for {format_number(agreement.percent)} % of {agreement.pairs:,} pairs"
    rows = [
        [f"{first}: {at}", *(f"{count:,}" for count in row)]
        for at, row in enumerate(agreement.table)
    ]
    return PageTable(
        f"{title}: {same}; {kappa}", ["", *(f"{second}: {at}" for at in range(len(rows)))], rows
    )


def _identify_target(score: BuiltStage) -> tuple[str | None, ...]:
    return tuple(score.upstream.get(role) for role in ("run", "dataset", "subset", "others"))


def _read_noise_lines(stage: BuiltStage) -> Iterable[dict[str, str]]:
    return csv.DictReader(stage.artifact.path("noise.csv").read_text(encoding="utf-8").splitlines())


def show_noise(stage: BuiltStage) -> AuditView:
    """Show leakage and noise: a row per finding, with places that share findings in columns side by side."""
    places: dict[str, dict[str, str]] = {}  # place → finding → its count and share
    for line in _read_noise_lines(stage):
        share = f" · {100 * float(line['share']):.2f} %" if line["share"] else ""
        places.setdefault(line["where"], {})[line["finding"]] = f"{int(line['count']):,}{share}"

    groups: list[dict[str, dict[str, str]]] = []
    for where, findings_here in places.items():
        fitting = [group for group in groups if _share_findings(group, findings_here)]
        if fitting:
            fitting[0][where] = findings_here
        else:
            groups.append({where: findings_here})

    grids = []
    for group in groups:
        findings = dict.fromkeys(finding for place in group.values() for finding in place)
        rows = [
            [finding, *(place.get(finding, "–") for place in group.values())]
            for finding in findings
        ]
        grids.append(PageTable(f"Findings: {', '.join(group)}", ["finding", *group], rows))
    examples = json.loads(stage.artifact.path("examples.json").read_bytes())
    return AuditView(stage, read_audit(stage.artifact), grids, examples=examples)


def _share_findings(group: dict[str, dict[str, str]], findings: dict[str, str]) -> bool:
    return any(findings.keys() & other.keys() for other in group.values())


def _has_summary(stage: BuiltStage) -> bool:
    return _SUMMARY_FILE in stage.artifact.manifest.files


def write_audits_csv(stages: Iterable[BuiltStage]) -> str:
    """Return every number of every audit as CSV, a line each."""
    lines: list[list[str]] = []
    for stage in stages:
        if stage.kind == "noise":
            rows = [[line[name] for name in _HEAD[1:5]] for line in _read_noise_lines(stage)]
        elif stage.declared.box == "Audits" and _has_summary(stage):
            rows = _list_summary_rows(stage)
        else:
            continue
        lines += [[stage.kind, *row, stage.key] for row in rows]
    return csv_text(_HEAD, lines)


def _list_summary_rows(stage: BuiltStage) -> list[list[str]]:
    """Return finding, place, count and share for every number in a stage's summary."""
    rows = []
    for path, value in flatten(json.loads(stage.artifact.path(_SUMMARY_FILE).read_bytes())).items():
        is_number = type(value) in (int, float)  # True is not a number here
        if path.split(".")[0] in _SETTINGS or not is_number:
            continue
        if "percent" in path:
            rows.append([path, "", "", f"{value / 100:.6f}"])
        else:
            rows.append([path, "", str(value), ""])
    return rows
