"""The report's section on leakage and noise: what the stage `noise` found, grouped by where, with examples."""

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tandem.reporting.grid import Grid
from tandem.store.artifact import Artifact
from tandem.store.lineage import Stage

Findings = dict[str, str]  # finding → how often, and which share that is


@dataclass(frozen=True)
class Audit:
    """One audit, as `audit_noise.html` shows it.

    Attributes:
        stage: it, with its artifact.
        grids: a table for the corpus, for the splits, for pairs of them, for the runs, places side by side.
        examples: finding → examples.
        summary: summary.json.
    """

    stage: Stage
    grids: list[Grid]
    examples: dict[str, list[dict[str, Any]]]
    summary: dict[str, Any]


def noise(stages: Iterable[Stage]) -> list[Audit]:
    """The audits among some stages."""
    return [_audit(stage, stage.artifact) for stage in stages if stage.kind == "noise"]


def _audit(stage: Stage, artifact: Artifact) -> Audit:
    examples, summary = (
        json.loads(artifact.path(name).read_text(encoding="utf-8")) for name in ("examples.json", "summary.json")
    )
    places: dict[str, Findings] = {}
    with open(artifact.path("noise.csv"), encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            places.setdefault(line["where"], {})[line["finding"]] = _said(line)
    return Audit(stage, [_grid(group) for group in _alike(places)], examples, summary)


def _said(line: dict[str, str]) -> str:
    """`15 · 7.65 %`, or the count alone."""
    share = f" · {100 * float(line['share']):.2f} %" if line["share"] else ""
    return f"{int(line['count']):,}{share}"


def _alike(places: dict[str, Findings]) -> list[dict[str, Findings]]:
    """Places that share a finding stand together."""
    groups: list[dict[str, Findings]] = []
    for where, findings in places.items():
        fitting = [group for group in groups if any(findings.keys() & told.keys() for told in group.values())]
        if not fitting:
            groups.append({})
        (fitting[0] if fitting else groups[-1])[where] = findings
    return groups


def _grid(group: dict[str, Findings]) -> Grid:
    """Findings below one another, places side by side."""
    findings = dict.fromkeys(finding for told in group.values() for finding in told)
    rows = [[finding, *(told.get(finding, "–") for told in group.values())] for finding in findings]
    return Grid(f"Findings: {', '.join(group)}", ["finding", *group], rows)
