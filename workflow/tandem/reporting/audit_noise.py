"""The report's section on leakage and noise: what the stage `noise` found, grouped by where, with examples."""

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tandem.artifact import Artifact
from tandem.reporting.lineage import Stage

Lines = list[dict[str, str]]


@dataclass(frozen=True)
class Audit:
    """One audit, as `audit_noise.html` shows it.

    Attributes:
        stage: it, with its artifact.
        places: (where, its lines of noise.csv) for the corpus, each split, two splits, each run.
        examples: finding → examples.
        summary: summary.json.
    """

    stage: Stage
    places: list[tuple[str, Lines]]
    examples: dict[str, list[dict[str, Any]]]
    summary: dict[str, Any]


def noise(stages: Iterable[Stage]) -> list[Audit]:
    """The audits among some stages."""
    return [_audit(stage, stage.artifact) for stage in stages if stage.kind == "noise"]


def _audit(stage: Stage, artifact: Artifact) -> Audit:
    examples, summary = (
        json.loads(artifact.path(name).read_text(encoding="utf-8")) for name in ("examples.json", "summary.json")
    )
    places: dict[str, Lines] = {}
    with open(artifact.path("noise.csv"), encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            places.setdefault(line["where"], []).append(line)
    return Audit(stage, list(places.items()), examples, summary)
