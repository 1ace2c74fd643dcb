"""A statistics table's layout: the paper's tables, and which dataset stands for each printed name.

Files are config/statistics/<paper>_<table>.yaml; `assets/statistics.schema.json` lists their keys.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.reporting.layouts import read_layout


@dataclass(frozen=True)
class Counted:
    """What is counted for a printed name.

    Attributes:
        names: datasets, whose counts are added up; none if no dataset of the catalogue is meant.
        splits: printed split → the dataset's, where they differ.
    """

    names: list[str]
    splits: dict[str, str]

    def split(self, printed: str) -> str:
        """The dataset's split of a printed one."""
        return self.splits.get(printed, printed)


@dataclass(frozen=True)
class StatisticsLayout:
    """A statistics table before it has numbers.

    Attributes:
        title: its heading.
        citation: of the paper.
        source: the paper in printed.csv.
        tables: the paper's tables in printed.csv.
        note: said below the table.
        quantities: (split, quantity) to be shown even where they are not printed.
        datasets: printed name → what is counted.
    """

    title: str
    citation: str
    source: str
    tables: list[str]
    note: str
    quantities: list[tuple[str, str]]
    datasets: dict[str, Counted]

    @property
    def needed(self) -> list[str]:
        """The datasets that the table counts, once each."""
        return list(dict.fromkeys(name for counted in self.datasets.values() for name in counted.names))


def load_statistics(path: Path) -> StatisticsLayout:
    """Read and check a layout; a `UserError` on a missing file and on a key or type that is not allowed."""
    content = read_layout(path, "statistics.schema.json", "config/statistics/<paper>_<table>.yaml")
    paper = content["paper"]
    return StatisticsLayout(
        title=content["title"],
        citation=paper["citation"].strip(),
        source=paper["source"],
        tables=paper["tables"],
        note=content.get("note", "").strip(),
        quantities=[(asked["split"], asked["quantity"]) for asked in content.get("quantities", [])],
        datasets={name: _counted(told) for name, told in content["datasets"].items()},
    )


def _counted(told: Any) -> Counted:
    """From a name, a list of names, `{dataset: name, splits: {…}}` or null."""
    if isinstance(told, dict):
        return Counted([told["dataset"]], told.get("splits", {}))
    return Counted([told] if isinstance(told, str) else list(told or ()), {})
