"""A sweep's numbers: means over seeds, intervals and tests against one point."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.artifact import Artifact, open_artifact
from tandem.errors import UserError
from tandem.reporting.results import percent
from tandem.scoring.scores import read_aligned
from tandem.scoring.significance import bootstrap_interval, holm, randomisation_test

Floats64 = NDArray[np.float64]
KEYS = {
    *("name", "title", "paths", "x", "scale", "baseline", "measures", "note", "printed"),
    *("dataset", "split", "stands_in_for", "rows"),
}


@dataclass(frozen=True)
class Line:
    """A system's value of a measure at a point; all but p in percent.

    Attributes:
        point: path → value.
        system: its name in the sweep.
        measure: by its ir_measures name.
        runs: how many different runs the mean is over: 1 where no seed touches the system.
        value: mean over runs and queries.
        sd: standard deviation of the runs' means, n - 1 in the denominator; None for one run.
        low, high: 95 % bootstrap interval over queries, of each query's mean over runs.
        change: difference from the same system at the baseline; None at the baseline and where it is the same run.
        p: of the paired randomisation test of that difference, Holm-corrected over the measure's comparisons.
        printed: a paper's value.
        stages: keys of the runs.
    """

    point: dict[str, Any]
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
    """A sweep with its numbers; the fields before `queries` are the sweep's own words."""

    name: str
    title: str
    paths: list[str]
    x: str
    scale: str
    baseline: dict[str, Any]
    note: str
    dataset: str
    split: str
    stands_in_for: str
    queries: int
    measures: list[str]
    lines: list[Line]

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
        return labelled(self.baseline)

    def to_json(self) -> str:
        """For programs; `read` reads it back."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"


def short(path: str) -> str:
    """A path without what every reader can guess: `rocketqav2.list_size` for `models.rocketqav2.train.list_size`."""
    return path.removeprefix("models.").replace(".train.", ".")


def labelled(point: dict[str, Any]) -> str:
    """`rocketqav2.list_size 8, seed 1`."""
    return ", ".join(f"{short(path)} {worded(value)}" for path, value in point.items())


def worded(value: Any) -> str:
    """A value as a reader expects it: 2e-05, null, paper, {"by": "ce"}."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read(path: Path) -> Result:
    """The sweep that the command `sweep` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Result(**{**content, "lines": [Line(**line) for line in content["lines"]]})
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; `snakemake sweep_{path.stem}` writes it") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: not a sweep written by `tandem sweep`; make it again") from None


def compute(told: dict[str, Any]) -> Result:
    """The numbers of a planned sweep.

    Args:
        told: what planning says: the sweep's words, and `rows`: point, seed, system and the folder of the scores.
    Raises:
        UserError: a key that is missing, a measure that was not computed, or scores of different queries.
    """
    if lacking := sorted(KEYS - told.keys()):
        raise UserError(f"--points: {lacking[0]} is missing; `snakemake sweep_<name>` writes the file")
    artifacts = {folder: open_artifact(Path(folder), "score") for folder in _once(told["rows"])}
    measures: list[str] = told["measures"] or next(iter(artifacts.values())).params["measures"]
    queries, values = read_aligned(list(artifacts.values()), measures)
    at = {folder: place for place, folder in enumerate(artifacts)}
    cells: dict[tuple[str, str], list[str]] = {}  # (point, system) → folders of its different runs
    points: dict[str, dict[str, Any]] = {}
    for row in told["rows"]:
        points.setdefault(json.dumps(row["point"], sort_keys=True), row["point"])
        folders = cells.setdefault((json.dumps(row["point"], sort_keys=True), row["system"]), [])
        folders += [row["scores"]] if row["scores"] not in folders else []
    means = np.stack([values[[at[folder] for folder in folders]].mean(axis=0) for folders in cells.values()])
    base = json.dumps(told["baseline"], sort_keys=True)
    places = {cell: place for place, cell in enumerate(cells)}
    against = {cell: places[base, cell[1]] for cell in cells if cells[cell] != cells[base, cell[1]]}
    low, high = (bound.reshape(len(cells), -1) for bound in bootstrap_interval(_columns(means)))
    p = _tests(means, {places[cell]: there for cell, there in against.items()})
    lines = []
    for (point, system), folders in cells.items():
        place = places[point, system]
        runs = values[[at[folder] for folder in folders]].mean(axis=1)  # (runs, measures)
        for m, measure in enumerate(measures):
            mean, there = means[place, :, m].mean(), against.get((point, system))
            lines.append(
                Line(
                    points[point], system, measure, len(folders), percent(mean),
                    percent(runs[:, m].std(ddof=1)) if len(folders) > 1 else None,
                    percent(low[place, m]), percent(high[place, m]),
                    None if there is None else percent(mean - means[there, :, m].mean()),
                    None if there is None else round(float(p[place][m]), 6),
                    _printed(told["printed"], points[point], system, measure),
                    [_key(artifacts[folder]) for folder in folders],
                )
            )  # fmt: skip
    words = {key: told[key] for key in ("name", "paths", "x", "scale", "baseline", "note", "dataset", "split")}
    words |= {"title": told["title"] or told["name"], "stands_in_for": told["stands_in_for"]}
    return Result(**words, queries=len(queries), measures=measures, lines=lines)


def _once(rows: list[dict[str, Any]]) -> list[str]:
    """The folders of the scores, each once."""
    return list(dict.fromkeys(row["scores"] for row in rows))


def _columns(means: Floats64) -> Floats64:
    """Shape (cells, queries, measures) as (queries, cells * measures)."""
    return means.transpose(1, 0, 2).reshape(means.shape[1], -1)


def _tests(means: Floats64, against: dict[int, int]) -> dict[int, Floats64]:
    """Corrected p per measure of each cell that is tested, by its place; `against` says the place of its baseline."""
    if not against:
        return {}
    differences = means[list(against)] - means[list(against.values())]
    p = randomisation_test(_columns(differences)).reshape(len(against), -1)
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
