"""The numbers of a sweep: the same systems at every point of a grid, with deviations, intervals and tests."""

import json
from functools import partial
from pathlib import Path

import numpy as np

from tandem.config.base import Model
from tandem.contrib.sweeps.options import PrintedPoint
from tandem.data.columns import Floats64
from tandem.evaluation.measure_names import is_share
from tandem.evaluation.scores import list_shared_measures, read_aligned
from tandem.evaluation.significance import bootstrap_mean, correct_by_holm, run_seeded_test
from tandem.extras.sweep_results import SweepHeader, SweepLine, SweepPoint, SweepResult
from tandem.report.scored import (
    collect_lines,
    describe_origin,
    name_unit,
    open_score_artifact,
    run_folder,
    scale_value,
    warn_of_few_seeds,
)
from tandem.store.lineage import walk

_COLUMNS_PER_PART = 1000  # columns that are resampled at once: their 10,000 resamples take 80 MB
# folders of a cell's runs, and of its baseline's runs
_Comparison = tuple[tuple[str, ...], tuple[str, ...]]


class SweepRow(Model):
    """A system at a point with one seed, and the folder of its scores."""

    point: SweepPoint
    seed: int
    system: str
    scores: str


class SweepPlan(SweepHeader):
    """A planned sweep, as planning writes it to <sweep>.points."""

    measures: list[str] | None
    printed: list[PrintedPoint]
    rows: list[SweepRow]


def compute_sweep(plan: SweepPlan) -> SweepResult:
    """Return the numbers of a planned sweep; refuse a measure or queries that some of the scores lack."""
    artifacts = {
        folder: open_score_artifact(folder)
        for folder in dict.fromkeys(row.scores for row in plan.rows)
    }
    measures = plan.measures or list_shared_measures(list(artifacts.values()))
    # shape (artifacts, queries, measures)
    queries, values = read_aligned(list(artifacts.values()), measures)
    place_by_folder = {folder: place for place, folder in enumerate(artifacts)}

    # The different runs of each point and system: if seeds do not affect a system, all seeds share one run.
    points: dict[str, SweepPoint] = {}
    cells: dict[tuple[str, str], list[str]] = {}  # (key of a point, system) → folders
    for row in plan.rows:
        points.setdefault(_make_key(row.point), row.point)
        folders = cells.setdefault((_make_key(row.point), row.system), [])
        if row.scores not in folders:
            folders.append(row.scores)
    by_cell = [
        values[[place_by_folder[folder] for folder in folders]] for folders in cells.values()
    ]
    means = np.stack([runs.mean(axis=0) for runs in by_cell])  # (cells, queries, measures)
    low, high = _bootstrap_intervals(means)

    # Each cell is compared with its system at the baseline, unless both are the same runs. Cells with the same runs, as
    # when a path does not affect a system, are one comparison.
    place_by_cell = {cell: place for place, cell in enumerate(cells)}
    baseline_key = _make_key(plan.baseline)
    baselines: dict[int, int] = {}
    comparisons: dict[int, _Comparison] = {}  # of each cell that has a baseline
    tests: dict[_Comparison, Floats64] = {}  # uncorrected p per measure
    for (key, system), folders in cells.items():
        base = cells[baseline_key, system]
        if folders != base:
            place, other = place_by_cell[key, system], place_by_cell[baseline_key, system]
            baselines[place] = other
            comparison = (tuple(folders), tuple(base))
            comparisons[place] = comparison
            if comparison not in tests:
                tests[comparison] = run_seeded_test(by_cell[place] - by_cell[other])
    p: dict[_Comparison, Floats64] = {}  # corrected
    if tests:
        corrected = np.apply_along_axis(correct_by_holm, 0, np.stack(list(tests.values())))
        p = dict(zip(tests, corrected, strict=True))

    run_keys = {folder: Path(run_folder(artifact)).name for folder, artifact in artifacts.items()}
    lines = []
    for place, ((key, system), folders) in enumerate(cells.items()):
        run_means, cell_means = by_cell[place].mean(axis=1), means[place].mean(axis=0)
        baseline = baselines.get(place)
        known = [entry for entry in plan.printed if entry.system == system]
        known = [entry for entry in known if entry.point.items() <= points[key].items()]
        for m, measure in enumerate(measures):
            scale = partial(scale_value, measure=measure)
            printed = [float(entry.value) for entry in known if entry.measure == measure]
            change = None
            if baseline is not None:
                change = scale(cell_means[m] - means[baseline, :, m].mean())
            line = SweepLine(
                point=points[key],
                system=system,
                measure=measure,
                runs=len(folders),
                value=scale(cell_means[m]),
                sd=scale(run_means[:, m].std(ddof=1)) if len(folders) > 1 else None,
                low=scale(low[place, m]),
                high=scale(high[place, m]),
                change=change,
                p=None if baseline is None else round(float(p[comparisons[place]][m]), 6),
                printed=printed[0] if printed else None,
                stages=[run_keys[folder] for folder in folders],
            )
            lines.append(line)

    compared = {*baselines, *baselines.values()}
    by_system = [
        [artifacts[folder] for folder in folders]
        for place, folders in enumerate(cells.values())
        if place in compared
    ]
    header = {name: getattr(plan, name) for name in SweepHeader.model_fields}
    return SweepResult(
        **{**header, "title": plan.title or plan.name},
        queries=len(queries),
        measures=measures,
        not_percent=[measure for measure in measures if not is_share(measure)],
        lines=lines,
        runs={
            run_keys[folder]: describe_origin(artifact) for folder, artifact in artifacts.items()
        },
        unit=name_unit(next(iter(artifacts.values()))),
        warnings=collect_lines(walk(artifacts.values()).values())
        + (warn_of_few_seeds(by_system) if baselines else []),
    )


def _make_key(point: SweepPoint) -> str:
    return json.dumps(point, sort_keys=True)


def _bootstrap_intervals(means: Floats64) -> tuple[Floats64, Floats64]:
    """Return the intervals' bounds (low, high), shape (cells, measures), of means, shape (cells, queries, measures)."""
    cells, queries, measures = means.shape
    columns = means.transpose(1, 0, 2).reshape(queries, -1)
    parts = [
        bootstrap_mean(columns[:, start : start + _COLUMNS_PER_PART])
        for start in range(0, columns.shape[1], _COLUMNS_PER_PART)
    ]
    low, high = (np.concatenate(side).reshape(cells, measures) for side in zip(*parts, strict=True))
    return low, high
