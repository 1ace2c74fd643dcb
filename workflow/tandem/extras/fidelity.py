"""The command `fidelity`: does a validation on the reduced corpus order checkpoints as one on the full corpus does?"""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from scipy import stats

from tandem.config.base import Model
from tandem.report import page
from tandem.report.charts import Series, line_chart, scatter
from tandem.report.flags import csv_out, parse_json, read_flags
from tandem.report.grid import csv_text
from tandem.report.sections import Addition, Extra, TrainingCharts
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_text
from tandem.training.selection import best, validated, worth

page.FOLDERS.append(Path(__file__).parent / "assets")
MEASURED = ["step", "measure", "reduced", "full_measure", "full"]
HEAD = ["model", "part", "checkpoint", *MEASURED, "tau", "r", "same_choice"]


class ValidationRow(Model):
    """A checkpoint of a model's part and its validations: folders of artifacts, `full` empty where it has none."""

    model: str
    part: str
    checkpoint: str
    reduced: str
    full: str


class CurvePoint(NamedTuple):
    """A checkpoint: its key, its step, its values on the reduced and on the full corpus."""

    key: str
    step: int
    reduced: float
    full: float


@dataclass(frozen=True)
class Curve:
    """The checkpoints of a model in order, and the validations of its part on the reduced and, if made, full corpus."""

    model: str
    part: str
    checkpoints: list[Artifact]
    reduced: list[Artifact]
    full: list[Artifact]

    @property
    def steps(self) -> list[int]:
        """Steps of each checkpoint."""
        return [int(checkpoint.manifest.facts["steps"]) for checkpoint in self.checkpoints]

    @property
    def measures(self) -> tuple[str, str]:
        """The measure on the reduced corpus and that on the full one (empty where nothing was measured)."""
        return validated(self.reduced[0])[0], validated(self.full[0])[0] if self.full else ""

    @property
    def rows(self) -> list[CurvePoint]:
        """The checkpoints with both values."""
        keys = [checkpoint.key for checkpoint in self.checkpoints]
        return list(map(CurvePoint, keys, self.steps, values(self.reduced), values(self.full)))

    @property
    def tau(self) -> float | None:
        """Kendall's τ-b between both, higher better on both sides."""
        return kendall(*self._worths()) if self.full else None

    @property
    def r(self) -> float | None:
        """Pearson's r between both."""
        return pearson(*self._worths()) if self.full else None

    @property
    def same(self) -> bool | None:
        """Whether both choose the same checkpoint."""
        choices = [best(worths) for worths in self._worths()] if self.full else []
        return choices[0] == choices[1] if choices else None

    @property
    def line(self) -> Markup:
        """Value against step, with that of the full corpus where it is the same measure."""
        series = [Series(f"{self.part}, reduced corpus", self.steps, values(self.reduced))]
        if self.measures[0] == self.measures[1]:
            series.append(Series(f"{self.part}, full corpus", self.steps, values(self.full)))
        return line_chart("Checkpoints on the dev queries", series, "step", self.measures[0])

    @property
    def points(self) -> Markup:
        """Full against reduced, a point per checkpoint."""
        both = Series(f"{self.model}, {self.part}", values(self.reduced), values(self.full))
        labels = [f"{self.measures[0]}, reduced corpus", f"{self.measures[1]}, full corpus"]
        return scatter("Fidelity of the reduced corpus", [both], *labels)

    def _worths(self) -> tuple[list[float], list[float]]:
        return [worth(validation) for validation in self.reduced], [worth(validation) for validation in self.full]


def values(validations: list[Artifact]) -> list[float]:
    """The mean of each validation."""
    return [validated(validation)[1] for validation in validations]


def kendall(x: list[float], y: list[float]) -> float | None:
    """Kendall's τ-b; None where x or y ties every pair."""
    return float(stats.kendalltau(x, y).statistic) if min(len(set(x)), len(set(y))) > 1 else None


def pearson(x: list[float], y: list[float]) -> float | None:
    """Pearson's r; None where x or y does not vary."""
    return float(stats.pearsonr(np.asarray(x), np.asarray(y)).statistic) if min(len(set(x)), len(set(y))) > 1 else None


def read_curves(text: str, flag: str = "validations") -> list[Curve]:
    """`--rows` or `--validations`: a JSON list of `ValidationRow`; a model's part stands together, in order."""
    names = ", ".join(sorted(ValidationRow.model_fields))
    rows = parse_json(flag, text, list[ValidationRow], f"a JSON list of objects with {names}")
    curves = []
    for (model, part), group in groupby(rows, key=lambda row: (row.model, row.part)):
        own = list(group)
        folders = [row.checkpoint for row in own], [row.reduced for row in own], [row.full for row in own]
        opened = ([open_artifact(Path(path), verify=False) for path in paths if path] for paths in folders)
        curves.append(Curve(model, part, *opened))
    return curves


def read_validations(text: str) -> Addition:
    """`--validations`: curves and agreement of the checkpoints of the page's trainings."""
    curves = read_curves(text)
    return Addition(
        artifacts=[artifact for curve in curves for artifact in curve.reduced + curve.full],
        training=[
            TrainingCharts(
                curve.checkpoints[0].key,
                [curve.line, *([curve.points] if curve.full else [])],
                page.fragment("_validations.html", "agreement", curve) if curve.full else Markup(),
            )
            for curve in curves
        ],
    )


EXTRA = Extra("validations", read_validations)


def main(words: list[str]) -> int:
    """`fidelity --rows JSON --out …/fidelity.csv`: writes fidelity.csv and .html side by side."""
    flags = read_flags(words, ("rows", "out"))
    out = csv_out(flags)
    curves = read_curves(flags["rows"], "rows")
    write_text(out, curves_csv(curves))
    write_text(out.with_suffix(".html"), page.render("fidelity.html", curves=curves))
    return 0


def curves_csv(curves: list[Curve]) -> str:
    """A line per checkpoint; the agreement of a model's part stands in each of its lines."""
    lines = []
    for curve in curves:
        agreement = ["" if value is None else f"{value:.6f}" for value in (curve.tau, curve.r)]
        for row in curve.rows:
            known = [curve.model, curve.part, row.key, row.step]
            measured = [curve.measures[0], f"{row.reduced:.6f}", curve.measures[1], f"{row.full:.6f}"]
            lines.append([*known, *measured, *agreement, "yes" if curve.same else "no"])
    return csv_text(HEAD, lines)
