"""The numbers of a sweep as its command wrote them: a system's values at each point, and the runs behind them."""

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from tandem.config.base import Model
from tandem.report.results import Origin, read_result_json, to_json

SweepPoint = dict[str, object]  # dotted path → value


class SweepHeader(Model):
    """What is known of a sweep before it is measured."""

    name: str
    title: str | None
    paths: list[str]
    x: str
    scale: str
    baseline: SweepPoint
    note: str
    dataset: str
    split: str
    stands_in_for: str


@dataclass(frozen=True)
class SweepLine:
    """A system's value of a measure at a point; all numbers but p are in percent, or in the measure's own unit."""

    point: SweepPoint
    system: str
    measure: str
    runs: int  # number of different runs in the mean: 1 where no seed affects the system
    value: float  # mean over runs and queries
    # standard deviation of the runs' means, n - 1 in the denominator; None for one run
    sd: float | None
    low: float  # 95 % bootstrap interval over queries, of each query's mean over runs
    high: float
    # difference from the same system at the baseline; None at the baseline and where it is the same run
    change: float | None
    p: float | None  # of the test of that difference, Holm-corrected over the measure's comparisons
    printed: float | None  # a paper's value
    stages: list[str]  # keys of the runs


class SweepResult(SweepHeader):
    """A sweep with its numbers; `runs` holds the origins by key of the run.

    `not_percent` are the measures that are not shares; their values are written unscaled.
    """

    title: str
    queries: int
    measures: list[str]
    lines: list[SweepLine]
    runs: dict[str, Origin]
    unit: str = "queries"  # what values are means over; of a group: datasets
    warnings: list[str] = Field(default_factory=list)
    not_percent: list[str] = Field(default_factory=list)

    def label_axis(self, measure: str) -> str:
        """Return a measure with its unit: `RR@10, %`."""
        return measure if measure in self.not_percent else f"{measure}, %"

    @property
    def caption(self) -> str:
        """Return a caption: what the sweep was measured on, with how many seeds, and what it was tested against."""
        stand_in = (
            f" (stands in for {self.stands_in_for}: not comparable in level)"
            if self.stands_in_for
            else ""
        )
        runs = max(line.runs for line in self.lines)
        seeds = f"means over {runs} seeds" if runs > 1 else "one seed"
        against = label_point(self.baseline)
        return f"{self.dataset} {self.split}, {self.queries:,} {self.unit}{stand_in}; {seeds}; p against {against}"

    def find_runs(self, line: SweepLine) -> list[str]:
        """Return the folders of a line's runs; two datasets may have a run of one key."""
        return [self.runs[key].folder if key in self.runs else key for key in line.stages]

    def to_json(self) -> str:
        """Return the result as JSON, which `read_result` reads back."""
        return to_json(SweepResult, self)


def shorten_path(path: str) -> str:
    """Return a path without parts that readers can guess: `rocketqav2.list_size` for
    `models.rocketqav2.train.list_size`.
    """
    return path.removeprefix("models.").replace(".train.", ".")


def label_point(point: SweepPoint) -> str:
    """Return a point in words: `rocketqav2.list_size 8, seed 1`."""
    return ", ".join(
        f"{shorten_path(path)} {format_path_value(value)}" for path, value in point.items()
    )


def format_path_value(value: object) -> str:
    """Return a value as a reader expects it: 2e-05, null, paper, {"by": "ce"}."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_result(path: Path) -> SweepResult:
    """Read a sweep that the command `sweep` wrote."""
    missing = f"`snakemake sweep_{path.stem}` writes it"
    return read_result_json(SweepResult, path, missing, "not a sweep written by `tandem sweep`")
