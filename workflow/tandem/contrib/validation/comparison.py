"""The command `fidelity`: does a validation on the reduced corpus order checkpoints as one on the full corpus does?"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated

from markupsafe import Markup

from tandem.config.base import Model
from tandem.contrib.validation.selection import find_best, read_validation_value, read_worth
from tandem.errors import UserError
from tandem.extras.report.charts import Series, draw_lines, draw_points
from tandem.extras.report.page import FOLDERS, render_macro, render_template
from tandem.extras.report.sections import Addition, TrainingCharts, adds_to_report
from tandem.report.table_commands import JSON, CsvOut, write_views
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import csv_text

FOLDERS.append(Path(__file__).parent / "assets")
_HEAD = [
    "model",
    "part",
    "checkpoint",
    "step",
    "measure",
    "reduced",
    "full_measure",
    "full",
    "tau",
    "r",
    "same_choice",
]


class ValidationRow(Model):
    """Name a checkpoint of a model's part and the folders of its validations; `full` is empty if it has none."""

    model: str
    part: str
    checkpoint: str
    reduced: str
    full: str


@dataclass(frozen=True)
class Curve:
    """Compare the validations of a model's checkpoints, in order, on the reduced and, if made, the full corpus.

    `tau` and `r` are Kendall's τ-b and Pearson's r between both, with higher values better on both sides. `same` is
    whether both choose the same checkpoint. All are None without validations on the full corpus.
    """

    model: str
    part: str
    checkpoints: list[Artifact]
    reduced: list[Artifact]
    full: list[Artifact]
    measures: tuple[str, str]
    tau: float | None
    r: float | None
    same: bool | None

    @property
    def steps(self) -> list[int]:
        """Steps of each checkpoint."""
        return [int(checkpoint.manifest.facts["steps"]) for checkpoint in self.checkpoints]

    @property
    def rows(self) -> Iterator[tuple[str, int, float, float]]:
        """Return for each checkpoint its key, its step, and its values on the reduced and on the full corpus."""
        keys = [checkpoint.key for checkpoint in self.checkpoints]
        return zip(
            keys, self.steps, _read_values(self.reduced), _read_values(self.full), strict=True
        )

    @property
    def line(self) -> Markup:
        """Return a chart of values against steps, with those on the full corpus if both have the same measure."""
        series = [Series(f"{self.part}, reduced corpus", self.steps, _read_values(self.reduced))]
        if self.measures[0] == self.measures[1]:
            series.append(Series(f"{self.part}, full corpus", self.steps, _read_values(self.full)))
        return draw_lines("Checkpoints on the dev queries", series, "step", self.measures[0])

    @property
    def points(self) -> Markup:
        """Return a chart of full against reduced values, a point per checkpoint."""
        both = Series(
            f"{self.model}, {self.part}", _read_values(self.reduced), _read_values(self.full)
        )
        labels = [f"{self.measures[0]}, reduced corpus", f"{self.measures[1]}, full corpus"]
        return draw_points("Fidelity of the reduced corpus", [both], *labels)


def _read_values(validations: Sequence[Artifact]) -> list[float]:
    return [read_validation_value(validation)[1] for validation in validations]


def measure_kendall(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return Kendall's τ-b; None if x or y ties every pair."""
    # imported here, as it takes a third of a second, for which reports without checkpoints need not wait
    from scipy import stats

    return float(stats.kendalltau(x, y).statistic) if min(len(set(x)), len(set(y))) > 1 else None


def measure_pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return Pearson's r; None if x or y does not vary."""
    from scipy import stats

    return float(stats.pearsonr(x, y).statistic) if min(len(set(x)), len(set(y))) > 1 else None


def open_curves(rows: Sequence[ValidationRow]) -> list[Curve]:
    """Return the curves of some validations; rows of a model's part are adjacent, in the order of steps."""
    groups = groupby(rows, key=lambda row: (row.model, row.part))
    return [_open_curve(model, part, list(group)) for (model, part), group in groups]


def _open_curve(model: str, part: str, rows: Sequence[ValidationRow]) -> Curve:
    checkpoints = _open_all(row.checkpoint for row in rows)
    reduced = _open_all(row.reduced for row in rows)
    full = _open_all(row.full for row in rows)
    measure, _ = read_validation_value(reduced[0])
    if not full:
        return Curve(model, part, checkpoints, reduced, full, (measure, ""), None, None, None)

    full_measure, _ = read_validation_value(full[0])
    worth = [read_worth(validation) for validation in reduced]
    full_worth = [read_worth(validation) for validation in full]
    return Curve(
        model=model,
        part=part,
        checkpoints=checkpoints,
        reduced=reduced,
        full=full,
        measures=(measure, full_measure),
        tau=measure_kendall(worth, full_worth),
        r=measure_pearson(worth, full_worth),
        same=find_best(worth) == find_best(full_worth),
    )


def _open_all(folders: Iterable[str]) -> list[Artifact]:
    """Open the artifacts in some folders; an empty name stands for none."""
    return [open_artifact(Path(folder), verify=False) for folder in folders if folder]


@adds_to_report("fidelity")
def add_validations(rows: Sequence[dict[str, str]]) -> Addition:
    """Add curves and agreement of the checkpoints of the report's trainings; rows are those of `ValidationRow`."""
    curves = open_curves([ValidationRow.model_validate(row) for row in rows])
    return Addition(
        artifacts=[artifact for curve in curves for artifact in curve.reduced + curve.full],
        training=[
            TrainingCharts(
                curve.checkpoints[0].key,
                [curve.line, *([curve.points] if curve.full else [])],
                render_macro("_validations.html", "agreement", curve) if curve.full else Markup(),
            )
            for curve in curves
        ],
    )


def write_fidelity(*, rows: Annotated[list[ValidationRow], JSON], out: CsvOut) -> None:
    """Compare validations on the reduced corpus with those on the full one: a table and a page.

    Args:
        rows: a JSON list of checkpoints with the folders of both validations, as planning writes it.
        out: the table; the page is written next to it as .html.
    """
    for row in rows:
        if not row.full:
            raise UserError(
                f"--rows: {row.checkpoint} has no validation on the full corpus; name it by full"
            )
    curves = open_curves(rows)
    write_views(
        out,
        {
            ".csv": write_curves_csv(curves),
            ".html": render_template("fidelity.html", curves=curves),
        },
    )


def write_curves_csv(curves: list[Curve]) -> str:
    """Return a line per checkpoint; the agreement of a model's part is in each of its lines."""
    lines = []
    for curve in curves:
        agreement = ["" if value is None else f"{value:.6f}" for value in (curve.tau, curve.r)]
        for key, step, reduced, full in curve.rows:
            measured = [curve.measures[0], f"{reduced:.6f}", curve.measures[1], f"{full:.6f}"]
            lines.append(
                [
                    curve.model,
                    curve.part,
                    key,
                    step,
                    *measured,
                    *agreement,
                    "yes" if curve.same else "no",
                ]
            )
    return csv_text(_HEAD, lines)
