"""The command `statistics`: what papers print about datasets beside what their artifacts count."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.errors import UserError
from tandem.reporting.counted import QUANTITIES, count
from tandem.reporting.flags import csv_out, read_flags, read_json
from tandem.reporting.grid import Grid
from tandem.reporting.page import render
from tandem.reporting.plain import csv_lines, escape, pipe_row
from tandem.reporting.printed import Printed, number_text, read_printed, verdict
from tandem.reporting.statistics_layout import Counted, StatisticsLayout, load_statistics
from tandem.store.artifact import open_artifact
from tandem.store.files import write_text

HEADER = ["table", "dataset", "quantity", "printed", "counted", "verdict"]


@dataclass(frozen=True)
class Line:
    """A line of the table, each cell as text."""

    table: str
    dataset: str
    quantity: str
    printed: str
    counted: str
    verdict: str

    def cells(self) -> list[str]:
        """The cells in the order of `HEADER`."""
        return [self.table, self.dataset, self.quantity, self.printed, self.counted, self.verdict]


def main(words: list[str]) -> int:
    """`statistics --layout FILE --artifacts JSON --presence JSON --out …/<table>.csv`.

    The printed numbers are those of printed.csv beside the layout. `--artifacts` maps the name of a dataset to its
    artifact's folder, `--presence` that of one that is not here to what is said of it, such as `not here (1.0 GB)`.
    Writes <table>.csv, .md and .html side by side.
    """
    flags = read_flags(words, ("layout", "artifacts", "presence", "out"))
    out = csv_out(flags)
    path = Path(flags["layout"])
    layout, numbers = load_statistics(path), path.with_name("printed.csv")
    printed = read_printed(numbers, layout.source, layout.tables)
    artifacts, presence = (_texts(flags, name) for name in ("artifacts", "presence"))
    _check(printed, numbers, layout, path)
    statistics = {name: _statistics(Path(folder)) for name, folder in artifacts.items()}
    lines = list(fill(layout, printed, statistics, presence))
    write_text(out, csv_text(lines))
    write_text(out.with_suffix(".md"), markdown(layout, lines))
    grid = Grid(layout.title, HEADER, [[cell or "–" for cell in line.cells()] for line in lines], named_by=1)
    write_text(out.with_suffix(".html"), render("grid.html", title=layout.title, grid=grid, notes=_notes(layout)))
    return 0


def fill(
    layout: StatisticsLayout,
    printed: list[Printed],
    statistics: dict[str, dict[str, Any]],
    presence: dict[str, str],
) -> Iterator[Line]:
    """A line for every printed number, and for what the layout asks and can be counted but is not printed.

    Args:
        layout: which dataset stands for each printed name.
        printed: the numbers.
        statistics: of each dataset that is here.
        presence: what is said of those that are not.
    """
    for name, stand_in in layout.datasets.items():
        told = [one for one in printed if one.dataset == name]
        known = {(one.split, one.quantity) for one in told}
        asked = [Printed(layout.tables[0], name, *each, "", "") for each in layout.quantities if each not in known]
        absent = _absent(stand_in, statistics, presence)
        for one in [*told, *(asked if absent is None else ())]:
            parts = [statistics[each] for each in stand_in.names] if absent is None else []
            counted = count(parts, stand_in.split(one.split), one.quantity) if parts else None
            if one.value or counted is not None:
                quantity = one.quantity if one.split == "all" else f"{one.quantity}, {one.split}"
                cells = one.table, name, quantity, one.value, number_text(counted)
                yield Line(*cells, verdict(one, counted, absent))


def csv_text(lines: list[Line]) -> str:
    """The table as CSV."""
    return csv_lines(HEADER, (line.cells() for line in lines))


def markdown(layout: StatisticsLayout, lines: list[Line]) -> str:
    """The table as a pipe table, with its title, note and source."""
    head = [f"**{escape(layout.title)}**", "", pipe_row(HEADER), pipe_row(["---"] * 3 + ["---:"] * 2 + ["---"])]
    rows = [pipe_row([escape(cell) for cell in line.cells()]) for line in lines]
    notes = [f"{escape(note.strip())}\n" for note in _notes(layout)]
    return "\n".join([*head, *rows, "", *notes]).rstrip("\n") + "\n"


def _notes(layout: StatisticsLayout) -> list[str]:
    """What stands below the table."""
    return [text for text in (layout.note, f"Source of the printed values: {layout.citation}.") if text]


def _absent(stand_in: Counted, statistics: dict[str, Any], presence: dict[str, str]) -> str | None:
    """What is said of a dataset that is not here, wholly or in part; None if it is."""
    missing = [name for name in stand_in.names if name not in statistics]
    if stand_in.names and not missing:
        return None
    told = dict.fromkeys(presence.get(name, "not here") for name in missing)
    return "; ".join(told) or "not here: not in the catalogue"


def _check(printed: list[Printed], numbers: Path, layout: StatisticsLayout, path: Path) -> None:
    """Every printed number must have its dataset in the layout, and be a quantity that can be counted."""
    if not printed:
        raise UserError(f"{numbers}: prints nothing of {layout.source} in {', '.join(layout.tables)}; see {path}")
    for one in printed:
        if one.dataset not in layout.datasets:
            raise UserError(f"{path}: datasets lacks {one.dataset}, of which {numbers} prints numbers; add it")
    asked = [one.quantity for one in printed] + [quantity for _, quantity in layout.quantities]
    for quantity in asked:
        if quantity not in QUANTITIES:
            raise UserError(f"{numbers}, {path}: {quantity!r} is no quantity; allowed are {', '.join(QUANTITIES)}")


def _statistics(folder: Path) -> dict[str, Any]:
    """What a dataset's artifact counts; only this file of it is read."""
    artifact = open_artifact(folder, "dataset", verify=False)
    told: dict[str, Any] = json.loads(artifact.path("statistics.json").read_text(encoding="utf-8"))
    return told


def _texts(flags: dict[str, str], name: str) -> dict[str, str]:
    """A flag that is a JSON object of texts."""
    value = read_json(name, flags[name])
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise UserError(f"--{name}: is not a JSON object of texts by dataset name")
    return value
