"""The numbers of a sweep: means over seeds, intervals and tests against one point."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.errors import UserError
from tandem.reporting.behind import origin
from tandem.reporting.generation import open_scores
from tandem.reporting.results import percent
from tandem.reporting.sweep_results import Line, Result
from tandem.scoring.scores import read_aligned
from tandem.scoring.significance import bootstrap_interval, holm, randomisation_test
from tandem.store.artifact import Artifact

Floats64 = NDArray[np.float64]
Cell = tuple[str, str]  # a point as JSON, and a system
KEYS = {
    *("name", "title", "paths", "x", "scale", "baseline", "measures", "note", "printed"),
    *("dataset", "split", "stands_in_for", "rows"),
}
WORDS = ("name", "paths", "x", "scale", "baseline", "note", "dataset", "split", "stands_in_for")
PART = 1000  # columns that are resampled at once: 10,000 resamples of them are 80 MB


def compute(told: dict[str, Any]) -> Result:
    """The numbers of a planned sweep.

    Args:
        told: what planning says: the sweep's words, and `rows`: point, seed, system and the folder of the scores.
    Raises:
        UserError: a key that is missing, a measure that was not computed, or scores of different queries.
    """
    if lacking := sorted(KEYS - told.keys()):
        raise UserError(f"--points: {lacking[0]} is missing; `snakemake sweep_<name>` writes the file")
    artifacts = {folder: open_scores(folder) for folder in _once(told["rows"])}
    measures: list[str] = told["measures"] or next(iter(artifacts.values())).params["measures"]
    queries, values = read_aligned(list(artifacts.values()), measures)
    at = {folder: place for place, folder in enumerate(artifacts)}
    points, cells = _cells(told["rows"])
    of = {cell: values[[at[folder] for folder in folders]] for cell, folders in cells.items()}
    means = np.stack([runs.mean(axis=0) for runs in of.values()])  # (cells, queries, measures)
    places = {cell: place for place, cell in enumerate(cells)}
    base = _text(told["baseline"])
    against = {cell: places[base, cell[1]] for cell in cells if cells[cell] != cells[base, cell[1]]}
    low, high = _bounds(means)
    p = _tests(means, {places[cell]: there for cell, there in against.items()})
    lines = []
    for cell, folders in cells.items():
        place, there, runs = places[cell], against.get(cell), of[cell].mean(axis=1)  # runs: (runs, measures)
        for m, measure in enumerate(measures):
            mean = means[place, :, m].mean()
            lines.append(
                Line(
                    points[cell[0]], cell[1], measure, len(folders), percent(mean),
                    percent(runs[:, m].std(ddof=1)) if len(folders) > 1 else None,
                    percent(low[place, m]), percent(high[place, m]),
                    None if there is None else percent(mean - means[there, :, m].mean()),
                    None if there is None else round(float(p[place][m]), 6),
                    _printed(told["printed"], points[cell[0]], cell[1], measure),
                    [_key(artifacts[folder]) for folder in folders],
                )
            )  # fmt: skip
    words = {key: told[key] for key in WORDS} | {"title": told["title"] or told["name"]}
    runs_of = {_key(artifact): origin(artifact) for artifact in artifacts.values()}
    return Result(**words, queries=len(queries), measures=measures, lines=lines, runs=runs_of)


def _once(rows: list[dict[str, Any]]) -> list[str]:
    """The folders of the scores, each once."""
    return list(dict.fromkeys(row["scores"] for row in rows))


def _text(point: dict[str, Any]) -> str:
    """A point as a key."""
    return json.dumps(point, sort_keys=True)


def _cells(rows: list[dict[str, Any]]) -> tuple[dict[str, dict[str, Any]], dict[Cell, list[str]]]:
    """The points by their text, and of each point and system the folders of its different runs."""
    points: dict[str, dict[str, Any]] = {}
    cells: dict[Cell, list[str]] = {}
    for row in rows:
        points.setdefault(_text(row["point"]), row["point"])
        folders = cells.setdefault((_text(row["point"]), row["system"]), [])
        folders += [row["scores"]] if row["scores"] not in folders else []
    return points, cells


def _by_parts(work: Callable[[Floats64], Floats64], columns: Floats64) -> Floats64:
    """What some work makes of a matrix's columns, PART of them at a time; the last axis of the result is theirs.

    Every column is drawn for by the same seed, so that parts change nothing; a thousand points at once take gigabytes.
    """
    starts = range(0, columns.shape[1], PART)
    return np.concatenate([work(columns[:, start : start + PART]) for start in starts], axis=-1)


def _columns(means: Floats64) -> Floats64:
    """Shape (cells, queries, measures) as (queries, cells * measures)."""
    return means.transpose(1, 0, 2).reshape(means.shape[1], -1)


def _bounds(means: Floats64) -> Floats64:
    """Bootstrap bounds of means of shape (cells, queries, measures): shape (2, cells, measures)."""
    found = _by_parts(lambda part: np.stack(bootstrap_interval(part)), _columns(means))
    return found.reshape(2, len(means), -1)


def _tests(means: Floats64, against: dict[int, int]) -> dict[int, Floats64]:
    """Corrected p per measure of each cell that is tested, by its place; `against` says the place of its baseline."""
    if not against:
        return {}
    differences = means[list(against)] - means[list(against.values())]
    p = _by_parts(randomisation_test, _columns(differences)).reshape(len(against), -1)
    corrected = np.stack([holm(p[:, measure]) for measure in range(p.shape[1])], axis=1)
    return dict(zip(against, corrected, strict=True))


def _printed(told: list[dict[str, Any]], point: dict[str, Any], system: str, measure: str) -> float | None:
    """A paper's value at a point; where it names no value of a path, any will do."""
    for one in told:
        if (one["system"], one["measure"]) == (system, measure) and one["point"].items() <= point.items():
            return float(one["value"])
    return None


def _key(score: Artifact) -> str:
    """The key of the run that was scored; the score's own for a group of datasets."""
    return Path(score.upstream.get("run", str(score.folder))).name
