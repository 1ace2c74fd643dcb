"""A table with its numbers: means, intervals and tests of the systems of a layout."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.artifact import Artifact
from tandem.errors import UserError
from tandem.reporting.layout import Column, Layout, System, name
from tandem.scoring.scores import read_aligned
from tandem.scoring.significance import bootstrap_interval, holm, randomisation_test

Floats64 = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """A number; all but p in percent. `printed` is the paper's, `low` and `high` a 95 % interval over queries.

    `change` is the value minus that of the row's baseline, `p` that of the test of it, Holm-corrected; both are None
    for a row without a baseline.
    """

    measure: str
    printed: float | None
    value: float
    low: float
    high: float
    change: float | None
    p: float | None


@dataclass(frozen=True)
class Row:
    """A system's numbers; `against` names its baseline, `stage` is its run's key and `folder` where that lies."""

    system: str
    first_stage: str
    against: str
    stage: str
    folder: str
    cells: list[Cell]


@dataclass(frozen=True)
class Table:
    """A filled layout."""

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

    @property
    def stands_in(self) -> bool:
        """Whether the printed numbers are of another dataset or split than ours."""
        there = self.printed_on
        return there is not None and (there["dataset"], there["split"]) != (self.dataset, self.split)

    @property
    def caption(self) -> str:
        """What the printed numbers and ours were measured on."""
        ours = f"ours: {self.dataset} {self.split}, {self.queries:,} queries"
        if self.printed_on is None:
            return ours
        stand_in = " (a stand-in: not comparable in level)" if self.stands_in else ""
        return f"printed: {self.printed_on['name']} {self.printed_on['split']}; {ours}{stand_in}"

    @property
    def has_printed(self) -> list[bool]:
        """Per column, whether any of its cells has a printed value."""
        columns = zip(*(row.cells for row in self.rows), strict=True)
        return [any(cell.printed is not None for cell in column) for column in columns]

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


def measured_columns(layout: Layout, measured: list[str]) -> list[Column]:
    """The layout's columns as far as they were measured, all measures for a layout without columns.

    A dataset may measure less than a table shows: answers do not tell a recall.
    """
    if not layout.columns:
        return [Column(name, name) for name in measured]
    columns = [column for column in layout.columns if column.measure in measured]
    if not columns:
        raise UserError(f"{layout.title}: none of its measures was computed, only {', '.join(measured)}")
    return columns


def fill(layout: Layout, artifacts: dict[System, Artifact], dataset: str, split: str) -> Table:
    """Compute a layout's numbers.

    Each visible row is tested against its baseline by the paired randomisation test, and the p-values of a measure are
    Holm-corrected over the table's comparisons.

    Args:
        layout: rows and columns.
        artifacts: the score artifact of every row, the hidden ones included.
        dataset: name of the dataset searched.
        split: split of its queries.
    """
    columns = measured_columns(layout, next(iter(artifacts.values())).params["measures"])
    measures = [column.measure for column in columns]
    ids = [row.id for row in layout.rows]
    queries, values = read_aligned([artifacts[i] for i in ids], measures)
    low, high = _intervals(values)
    means = values.mean(axis=1)
    p = _tests(layout, ids, values)
    shares = {system: means[at] for at, system in enumerate(ids)}
    rows = []
    for at, row in enumerate(layout.rows):
        if row.hidden:
            continue
        folder = artifacts[row.id].upstream.get("run") or str(artifacts[row.id].folder)
        cells = [
            Cell(
                measure,
                row.printed.get(measure),
                percent(means[at, c]),
                percent(low[at, c]),
                percent(high[at, c]),
                percent(means[at, c] - shares[row.baseline][c]) if row.baseline else None,
                round(float(p[row.id][c]), 6) if row.id in p else None,
            )
            for c, measure in enumerate(measures)
        ]
        against = name(row.baseline) if row.baseline else ""
        rows.append(Row(row.system, row.first_stage, against, Path(folder).name, folder, cells))
    names = [column.name for column in columns]
    fixed = (layout.title, layout.paper, layout.printed_on, layout.decimals, layout.note, names)
    return Table(*fixed, dataset, split, len(queries), rows)


def _intervals(values: Floats64) -> tuple[Floats64, Floats64]:
    """Bootstrap bounds, each of shape (systems, measures), of values of shape (systems, queries, measures)."""
    systems, queries, measures = values.shape
    flat = values.transpose(1, 0, 2).reshape(queries, systems * measures)
    low, high = bootstrap_interval(flat)
    return low.reshape(systems, measures), high.reshape(systems, measures)


def _tests(layout: Layout, ids: Sequence[System], values: Floats64) -> dict[System, Floats64]:
    """Corrected p per measure of each visible row that has a baseline."""
    tested = [(row.id, row.baseline) for row in layout.rows if row.baseline is not None and not row.hidden]
    if not tested:
        return {}
    differences = np.stack([values[ids.index(own)] - values[ids.index(base)] for own, base in tested], axis=1)
    p = randomisation_test(differences.reshape(len(differences), -1)).reshape(len(tested), -1)
    corrected = np.stack([holm(p[:, measure]) for measure in range(p.shape[1])], axis=1)
    return {own: corrected[at] for at, (own, _) in enumerate(tested)}
