"""Sweeps: the same systems at every point of a grid, with deviations over seeds, intervals and tests."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from tandem.config.base import Model
from tandem.config.settings import PrintedPoint
from tandem.data.columns import Floats64
from tandem.evaluation.scores import list_shared_measures, read_aligned
from tandem.evaluation.significance import bootstrap_mean, correct_by_holm, run_seeded_test
from tandem.report.results import Origin, read_result_json, to_json, to_percent
from tandem.report.scored import describe_origin, name_unit, open_score_artifact, run_folder, warn_of_few_seeds
from tandem.store.lineage import walk

Point = dict[str, object]  # dotted path → value
PART = 1000  # columns that are resampled at once: 10,000 resamples of them are 80 MB


class SweepRow(Model):
    """A system at a point with one seed, and the folder of its scores."""

    point: Point
    seed: int
    system: str
    scores: str


class Sweep(Model):
    """What is known of a sweep before it is measured."""

    name: str
    title: str | None
    paths: list[str]
    x: str
    scale: str
    baseline: Point
    note: str
    dataset: str
    split: str
    stands_in_for: str


class SweepPlan(Sweep):
    """A planned sweep, as planning writes it to <sweep>.points."""

    measures: list[str] | None
    printed: list[PrintedPoint]
    rows: list[SweepRow]


@dataclass(frozen=True)
class Line:
    """A system's value of a measure at a point; all but p in percent."""

    point: Point
    system: str
    measure: str
    runs: int  # how many different runs the mean is over: 1 where no seed touches the system
    value: float  # mean over runs and queries
    sd: float | None  # standard deviation of the runs' means, n - 1 in the denominator; None for one run
    low: float  # 95 % bootstrap interval over queries, of each query's mean over runs
    high: float
    change: float | None  # from the same system at the baseline; None at the baseline and where it is the same run
    p: float | None  # of the test of that difference, Holm-corrected over the measure's comparisons
    printed: float | None  # a paper's value
    stages: list[str]  # keys of the runs


class Result(Sweep):
    """A sweep with its numbers; `runs` has the origins by key of the run."""

    title: str
    queries: int
    measures: list[str]
    lines: list[Line]
    runs: dict[str, Origin]
    unit: str = "queries"  # what values are means over; of a group: datasets
    warnings: list[str] = Field(default_factory=list)

    @property
    def caption(self) -> str:
        """What it was measured on, with how many seeds, and against what it was tested."""
        stand_in = f" (stands in for {self.stands_in_for}: not comparable in level)" if self.stands_in_for else ""
        runs = max(line.runs for line in self.lines)
        seeds = f"means over {runs} seeds" if runs > 1 else "one seed"
        against = label_point(self.baseline)
        return f"{self.dataset} {self.split}, {self.queries:,} {self.unit}{stand_in}; {seeds}; p against {against}"

    def to_json(self) -> str:
        """The result as JSON, which `read_result` reads back."""
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
    return read_result_json(Result, path, missing, "not a sweep written by `tandem sweep`")


def compute(plan: SweepPlan) -> Result:
    """The numbers of a planned sweep; a `UserError` for a measure that was not computed, or other queries' scores."""
    artifacts = {folder: open_score_artifact(folder) for folder in dict.fromkeys(row.scores for row in plan.rows)}
    measures = plan.measures or list_shared_measures(list(artifacts.values()))
    queries, values = read_aligned(list(artifacts.values()), measures)
    at = {folder: place for place, folder in enumerate(artifacts)}
    # Of each point and system the different runs: where no seed touches a system, all seeds have one.
    points, cells = dict[str, Point](), dict[tuple[str, str], list[str]]()
    for row in plan.rows:
        points.setdefault(_key(row.point), row.point)
        folders = cells.setdefault((_key(row.point), row.system), [])
        folders += [row.scores] if row.scores not in folders else []
    by_cell = [values[[at[folder] for folder in folders]] for folders in cells.values()]
    means = np.stack([runs.mean(axis=0) for runs in by_cell])  # (cells, queries, measures)
    places, base = {cell: place for place, cell in enumerate(cells)}, _key(plan.baseline)
    baselines = {places[c]: places[base, c[1]] for c, folders in cells.items() if folders != cells[base, c[1]]}
    low, high = _intervals(means)
    p: dict[int, Floats64] = {}  # per measure of each cell that has a baseline, corrected
    if baselines:
        raw = np.stack([run_seeded_test(by_cell[place] - by_cell[other]) for place, other in baselines.items()])
        p = dict(zip(baselines, np.apply_along_axis(correct_by_holm, 0, raw), strict=True))
    keys = {folder: Path(run_folder(artifact)).name for folder, artifact in artifacts.items()}
    lines = []
    for place, ((key, system), folders) in enumerate(cells.items()):
        runs, own, baseline = by_cell[place].mean(axis=1), means[place].mean(axis=0), baselines.get(place)
        known = [e for e in plan.printed if e.system == system and e.point.items() <= points[key].items()]
        for m, measure in enumerate(measures):
            lines.append(
                Line(
                    point=points[key],
                    system=system,
                    measure=measure,
                    runs=len(folders),
                    value=to_percent(own[m]),
                    sd=to_percent(runs[:, m].std(ddof=1)) if len(folders) > 1 else None,
                    low=to_percent(low[place, m]),
                    high=to_percent(high[place, m]),
                    change=None if baseline is None else to_percent(own[m] - means[baseline, :, m].mean()),
                    p=None if baseline is None else round(float(p[place][m]), 6),
                    printed=next((float(entry.value) for entry in known if entry.measure == measure), None),
                    stages=[keys[folder] for folder in folders],
                )
            )
    fields = {name: getattr(plan, name) for name in Sweep.model_fields} | {"title": plan.title or plan.name}
    origins = {keys[folder]: describe_origin(artifact) for folder, artifact in artifacts.items()}
    unit = name_unit(next(iter(artifacts.values())))
    seeds = len({row.seed for row in plan.rows})
    warnings = warn_of_few_seeds(seeds, walk(artifacts.values()).values()) if baselines else []
    numbers = {"queries": len(queries), "measures": measures, "lines": lines, "runs": origins}
    return Result(**fields, **numbers, unit=unit, warnings=warnings)


def _key(point: Point) -> str:
    return json.dumps(point, sort_keys=True)


def _intervals(means: Floats64) -> tuple[Floats64, Floats64]:
    """Low and high, shape (cells, measures), of means of shape (cells, queries, measures), a part of them at a time."""
    cells, queries, measures = means.shape
    columns = means.transpose(1, 0, 2).reshape(queries, -1)
    parts = [bootstrap_mean(columns[:, start : start + PART]) for start in range(0, columns.shape[1], PART)]
    low, high = (np.concatenate(side).reshape(cells, measures) for side in zip(*parts, strict=True))
    return low, high
