"""The command `audits`: one page, and one table, of the findings of a dataset's audits; their section of the report."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem.extras.audits.effects import (
    Examples,
    Summary,
    false_negative_audits,
    read_audit,
    read_examples,
    similar_audits,
)
from tandem.report import page
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
Findings = dict[str, str]  # finding → how often, and which share that is


@dataclass(frozen=True)
class NoiseAudit:
    """An audit of leakage and noise.

    Attributes:
        stage: it, with its artifact.
        grids: a table for the corpus, for the splits, for pairs of them, for the runs, places side by side.
        examples: finding → examples.
        summary: summary.json.
    """

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
        return (
            Section("audits", "Audits", page.fragment("_audits.html", "audits", *audits), "checks") if parts else None
        )

    return Addition([open_artifact(Path(part), verify=False) for part in parts], section)


EXTRA = Extra("audits", read_audits)


def noise_audits(stages: Iterable[Stage]) -> list[NoiseAudit]:
    """The audits of leakage and noise among some stages."""
    return [_noise_audit(stage) for stage in stages if stage.kind == "noise"]


def _noise_audit(stage: Stage) -> NoiseAudit:
    places: dict[str, Findings] = {}
    for line in _noise_lines(stage.artifact):
        share = f" · {100 * float(line['share']):.2f} %" if line["share"] else ""
        places.setdefault(line["where"], {})[line["finding"]] = f"{int(line['count']):,}{share}"
    grids = [_grid(group) for group in _group_places(places)]
    return NoiseAudit(stage, grids, read_examples(stage.artifact), read_audit(stage.artifact))


def _noise_lines(artifact: Artifact) -> Iterator[dict[str, str]]:
    with open(artifact.path("noise.csv"), encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _group_places(places: dict[str, Findings]) -> list[dict[str, Findings]]:
    """Places that share a finding stand together."""
    groups: list[dict[str, Findings]] = []
    for where, findings in places.items():
        fitting = [group for group in groups if any(findings.keys() & other.keys() for other in group.values())]
        if not fitting:
            groups.append({})
        (fitting[0] if fitting else groups[-1])[where] = findings
    return groups


def _grid(group: dict[str, Findings]) -> Grid:
    """Findings below one another, places side by side."""
    findings = dict.fromkeys(finding for place in group.values() for finding in place)
    rows = [[finding, *(place.get(finding, "–") for place in group.values())] for finding in findings]
    return Grid(f"Findings: {', '.join(group)}", ["finding", *group], rows)


def audits_csv(stages: Iterable[Stage]) -> str:
    """Every number of every audit, a line each."""
    audits = [stage for stage in stages if stage.kind in LINES]
    return csv_text(HEAD, ([a.kind, *line, a.key] for a in audits for line in LINES[a.kind](a.artifact)))


def _noise_rows(artifact: Artifact) -> Iterator[list[str]]:
    """finding, where, count, share."""
    for line in _noise_lines(artifact):
        yield [line[name] for name in HEAD[1:5]]


def _summary_rows(artifact: Artifact) -> Iterator[list[str]]:
    """The same of summary.json: what it calls percent is a share."""
    for path, value in flatten(json.loads(artifact.path("summary.json").read_text(encoding="utf-8"))).items():
        if path.split(".")[0] not in SETTINGS and isinstance(value, int | float) and not isinstance(value, bool):
            is_share = "percent" in path
            yield [path, "", "" if is_share else str(value), f"{value / 100:.6f}" if is_share else ""]


LINES: dict[str, Callable[[Artifact], Iterator[list[str]]]] = {
    "noise": _noise_rows,
    "similar_queries": _summary_rows,
    "false_negatives": _summary_rows,
}
