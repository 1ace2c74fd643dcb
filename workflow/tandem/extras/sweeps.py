"""Sweeps: the same systems at every point of a grid, as a table and as plots."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tandem.config.base import Model
from tandem.config.tables import PrintedPoint
from tandem.evaluation.measures import Floats64
from tandem.evaluation.scores import measures_of, read_aligned
from tandem.evaluation.significance import bootstrap_interval, holm, randomisation_test
from tandem.report.results import Origin, percent, read_json, to_json
from tandem.report.scored import open_scores, origin, run_folder
from tandem.store.artifact import Artifact

Point = dict[str, object]  # dotted path → value
Cell = tuple[str, str]  # a point as JSON, and a system
PART = 1000  # columns that are resampled at once: 10,000 resamples of them are 80 MB


class SweepRow(Model):
    """A system at a point with one seed, and the folder of its scores."""

    point: Point
    seed: int
    system: str
    scores: str


class SweepPlan(Model):
    """A planned sweep, as planning writes it to <sweep>.points."""

    name: str
    title: str | None
    paths: list[str]
    x: str
    scale: str
    baseline: Point
    measures: list[str] | None
    note: str
    printed: list[PrintedPoint]
    dataset: str
    split: str
    stands_in_for: str
    rows: list[SweepRow]


@dataclass(frozen=True)
class Line:
    """A system's value of a measure at a point; all but p in percent.

    Attributes:
        runs: how many different runs the mean is over: 1 where no seed touches the system.
        value: mean over runs and queries.
        sd: standard deviation of the runs' means, n - 1 in the denominator; None for one run.
        low, high: 95 % bootstrap interval over queries, of each query's mean over runs.
        change: difference from the same system at the baseline; None at the baseline and where it is the same run.
        p: of the paired randomisation test of that difference, Holm-corrected over the measure's comparisons.
        printed: a paper's value.
        stages: keys of the runs.
    """

    point: Point
    system: str
    measure: str
    runs: int
    value: float
    sd: float | None
    low: float
    high: float
    change: float | None
    p: float | None
    printed: float | None
    stages: list[str]


@dataclass(frozen=True)
class Result:
    """A sweep with its numbers; the fields before `queries` are those of the plan, `runs` the origins by run key."""

    name: str
    title: str
    paths: list[str]
    x: str
    scale: str
    baseline: Point
    note: str
    dataset: str
    split: str
    stands_in_for: str
    queries: int
    measures: list[str]
    lines: list[Line]
    runs: dict[str, Origin] = field(default_factory=dict)

    @property
    def caption(self) -> str:
        """What it was measured on, with how many seeds, and against what it was tested."""
        stand_in = f" (stands in for {self.stands_in_for}: not comparable in level)" if self.stands_in_for else ""
        runs = max(line.runs for line in self.lines)
        seeds = f"means over {runs} seeds" if runs > 1 else "one seed"
        return f"{self.dataset} {self.split}, {self.queries:,} queries{stand_in}; {seeds}; p against {self.against}"

    @property
    def against(self) -> str:
        """The baseline point in words."""
        return label_point(self.baseline)

    def to_json(self) -> str:
        """For programs; `read_result` reads it back."""
        return to_json(Result, self)


def short_path(path: str) -> str:
    """A path without what every reader can guess: `rocketqav2.list_size` for `models.rocketqav2.train.list_size`."""
    return path.removeprefix("models.").replace(".train.", ".")


def label_point(point: Point) -> str:
    """`rocketqav2.list_size 8, seed 1`."""
    return ", ".join(f"{short_path(path)} {format_value(value)}" for path, value in point.items())


def format_value(value: object) -> str:
    """A value as a reader expects it: 2e-05, null, paper, {"by": "ce"}."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_result(path: Path) -> Result:
    """The sweep that the command `sweep` wrote."""
    missing = f"`snakemake sweep_{path.stem}` writes it"
    return read_json(Result, path, missing, "not a sweep written by `tandem sweep`")


def compute(plan: SweepPlan) -> Result:
    """The numbers of a planned sweep.

    Raises:
        UserError: a measure that was not computed, or scores of different queries.
    """
    artifacts = {folder: open_scores(folder) for folder in dict.fromkeys(row.scores for row in plan.rows)}
    measures = plan.measures or measures_of(next(iter(artifacts.values())))
    queries, values = read_aligned(list(artifacts.values()), measures)
    at = {folder: place for place, folder in enumerate(artifacts)}
    points, cells = _cells(plan.rows)
    by_cell = {cell: values[[at[folder] for folder in folders]] for cell, folders in cells.items()}
    means = np.stack([runs.mean(axis=0) for runs in by_cell.values()])  # (cells, queries, measures)
    places = {cell: place for place, cell in enumerate(cells)}
    base = _key(plan.baseline)
    against = {cell: places[base, cell[1]] for cell in cells if cells[cell] != cells[base, cell[1]]}
    intervals = _by_parts(lambda part: np.stack(bootstrap_interval(part)), _columns(means))
    low, high = intervals.reshape(2, len(means), -1)  # each (cells, measures)
    p = _tests(means, {places[cell]: baseline for cell, baseline in against.items()})
    lines = []
    for cell, folders in cells.items():
        place, baseline, runs = places[cell], against.get(cell), by_cell[cell].mean(axis=1)  # runs: (runs, measures)
        for m, measure in enumerate(measures):
            mean = means[place, :, m].mean()
            lines.append(
                Line(
                    points[cell[0]], cell[1], measure, len(folders), percent(mean),
                    percent(runs[:, m].std(ddof=1)) if len(folders) > 1 else None,
                    percent(low[place, m]), percent(high[place, m]),
                    None if baseline is None else percent(mean - means[baseline, :, m].mean()),
                    None if baseline is None else round(float(p[place][m]), 6),
                    _printed_value(plan.printed, points[cell[0]], cell[1], measure),
                    [_run_key(artifacts[folder]) for folder in folders],
                )
            )  # fmt: skip
    return Result(
        plan.name, plan.title or plan.name, plan.paths, plan.x, plan.scale, plan.baseline, plan.note, plan.dataset,
        plan.split, plan.stands_in_for, len(queries), measures, lines,
        {_run_key(artifact): origin(artifact) for artifact in artifacts.values()},
    )  # fmt: skip


def _key(point: Point) -> str:
    return json.dumps(point, sort_keys=True)


def _run_key(scores: Artifact) -> str:
    return Path(run_folder(scores)).name


def _cells(rows: Iterable[SweepRow]) -> tuple[dict[str, Point], dict[Cell, list[str]]]:
    """The points by their key, and of each point and system the folders of its different runs."""
    points: dict[str, Point] = {}
    cells: dict[Cell, list[str]] = {}
    for row in rows:
        points.setdefault(_key(row.point), row.point)
        folders = cells.setdefault((_key(row.point), row.system), [])
        folders += [row.scores] if row.scores not in folders else []
    return points, cells


def _by_parts(compute: Callable[[Floats64], Floats64], columns: Floats64) -> Floats64:
    starts = range(0, columns.shape[1], PART)
    return np.concatenate([compute(columns[:, start : start + PART]) for start in starts], axis=-1)


def _columns(means: Floats64) -> Floats64:
    return means.transpose(1, 0, 2).reshape(means.shape[1], -1)


def _tests(means: Floats64, against: dict[int, int]) -> dict[int, Floats64]:
    """Corrected p per measure of each tested cell, by its place; `against` holds the place of its baseline."""
    if not against:
        return {}
    differences = means[list(against)] - means[list(against.values())]
    p = _by_parts(randomisation_test, _columns(differences)).reshape(len(against), -1)
    corrected = np.stack([holm(p[:, measure]) for measure in range(p.shape[1])], axis=1)
    return dict(zip(against, corrected, strict=True))


def _printed_value(printed: Sequence[PrintedPoint], point: Point, system: str, measure: str) -> float | None:
    for entry in printed:
        if (entry.system, entry.measure) == (system, measure) and entry.point.items() <= point.items():
            return float(entry.value)
    return None
