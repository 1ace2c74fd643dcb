"""A sweep with its numbers, as `tandem sweep` writes it and the report reads it."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tandem.errors import UserError


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
    """A sweep with its numbers; the fields before `queries` are the sweep's own words.

    `runs` says of each run's key where it lies, at which commit, when and where it was made; see `behind.origin`.
    """

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
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)

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
