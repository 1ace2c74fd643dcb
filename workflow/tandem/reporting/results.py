"""A table with its numbers, as `tandem table` writes it and the report reads it."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tandem.errors import UserError


@dataclass(frozen=True)
class Cell:
    """A number; all but p in percent. `printed` is the paper's, `low` and `high` a 95 % interval over queries.

    `change` is the value minus that of the row's baseline, `p` that of the test of it, Holm-corrected; both are None
    for a row without a baseline. With several seeds `value` is the mean of `seeds`, the values of each, and `sd` their
    standard deviation. What is only quoted, or cannot be measured where it is searched, has no value.

    Attributes:
        verdict: see `bands.verdict`; empty where there is nothing to hold the value against.
        band: what the verdict goes by.
        stages: the key of the run of each seed.
        dataset: where it was searched, `split` on which queries.
        stands_in: whether that is another dataset or split than the printed number's.
    """

    measure: str
    printed: float | None
    value: float | None
    low: float | None
    high: float | None
    change: float | None
    p: float | None
    sd: float | None = None
    seeds: list[float] = field(default_factory=list)
    verdict: str = ""
    band: dict[str, Any] | None = None
    stages: list[str] = field(default_factory=list)
    dataset: str = ""
    split: str = ""
    stands_in: bool = False


@dataclass(frozen=True)
class Row:
    """A system's numbers; `against` names its baseline, `stage` is its run's key and `folder` where that lies.

    Attributes:
        quoted: printed values only: it has no run, and `stage` and `folder` are empty.
        lineage: of each of its runs: dataset, split, seed, keys, commit, time, machine (see `behind.lineage`).
        differs: what tells its run from that of `neighbour`, the row before it: a line for each parameter.
        instead: which datasets stand in for those it is trained on.
        absent: why it has no run, or none for some columns, where it is not meant to be quoted.
    """

    system: str
    first_stage: str
    against: str
    stage: str
    folder: str
    cells: list[Cell]
    quoted: bool = False
    lineage: list[dict[str, Any]] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    neighbour: str = ""
    instead: str = ""
    absent: str = ""


@dataclass(frozen=True)
class Table:
    """A filled layout; `columns` says of each of `names` its measure, the paper's dataset and split, and ours."""

    title: str
    paper: dict[str, str] | None
    printed_on: dict[str, str] | None
    decimals: int
    note: str
    names: list[str]
    dataset: str
    split: str
    queries: int
    rows: list[Row]
    columns: list[dict[str, Any]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    @property
    def stands_in(self) -> bool:
        """Whether printed numbers are of another dataset or split than ours, or of models trained on another."""
        return any(row.instead or any(cell.stands_in for cell in row.cells) for row in self.rows)

    @property
    def caption(self) -> str:
        """What the printed numbers and ours were measured on."""
        own = [(one["dataset"], one["split"], one["queries"]) for one in self.columns if one["queries"]]
        searched = list(dict.fromkeys(own)) or [(self.dataset, self.split, self.queries)]
        ours = "ours: " + ", ".join(f"{name} {split}, {queries:,} queries" for name, split, queries in searched)
        ours += f", {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        if instead := list(dict.fromkeys(row.instead for row in self.rows if row.instead)):
            ours += f", trained on {'; '.join(instead)}"
        if self.printed_on is None:
            return ours
        there = [f"{one['dataset_name']} {one['printed_split']}".strip() for one in self.columns if one["dataset_name"]]
        printed = ", ".join(dict.fromkeys(there)) or f"{self.printed_on['name']} {self.printed_on['split']}"
        stand_in = " (a stand-in: not comparable in level)" if self.stands_in else ""
        return f"printed: {printed}; {ours}{stand_in}"

    @property
    def has_printed(self) -> list[bool]:
        """Per column, whether any of its cells has a printed value."""
        columns = zip(*(row.cells for row in self.rows), strict=True)
        return [any(cell.printed is not None for cell in column) for column in columns]

    @property
    def has_verdict(self) -> list[bool]:
        """Per column, whether any of its cells has a verdict."""
        return [any(cell.verdict for cell in column) for column in zip(*(row.cells for row in self.rows), strict=True)]

    def to_json(self) -> str:
        """The table for programs; `from_json` reads it back."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"


def from_json(path: Path) -> Table:
    """The table that `tandem table` wrote beside its CSV."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows = [Row(**{**row, "cells": [Cell(**cell) for cell in row["cells"]]}) for row in content.pop("rows")]
        return Table(**content, rows=rows)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; `tandem table` writes it beside the CSV") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: not a table written by `tandem table`; make it again") from None


def percent(share: float) -> float:
    """A share in percent to four decimals; noise in a sum's last bits cannot tip the rounding."""
    return round(round(100 * share, 9), 4)
