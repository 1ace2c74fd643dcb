"""The command `statistics`: the papers' numbers about datasets next to the numbers that artifacts count."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from tandem.config.loading import read_section
from tandem.contrib.statistics.options import StatisticsLayout
from tandem.errors import UserError
from tandem.evaluation.layouts import WRONG_NOTE_PREFIX, read_csv_rows
from tandem.extras.report.page import UNIT_FACTORS, render_template
from tandem.extras.report.sections import format_figure
from tandem.report.grids import PageTable, write_markdown
from tandem.report.table_commands import JSON, CsvOut, write_views
from tandem.stages.base import flatten
from tandem.store.artifact import open_artifact
from tandem.store.files import csv_text

_HEAD = ["table", "dataset", "quantity", "printed", "counted", "verdict"]
NUMBER = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?([KM]?)")
Statistics = dict[str, Any]  # statistics.json of a dataset


class PrintedNumber(NamedTuple):
    """A line of config/statistics/printed.csv: a number that a paper prints about a dataset.

    `value` is empty if the paper prints none. `split` is a split, several joined by `+`, or `all`. `note` begins with
    `wrong: ` if the number is known to be wrong.
    """

    table: str
    dataset: str
    split: str
    quantity: str
    value: str
    note: str


_PRINTED_COLUMNS = ["source", *PrintedNumber._fields]  # the file's columns


def parse_printed_number(text: str) -> tuple[float, float]:
    """Return a printed number and the unit of its last digit: `10.4M` is 10,400,000 in units of 100,000."""
    match = NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a printed number")
    whole, decimals, suffix = match.groups(default="")
    unit = UNIT_FACTORS[suffix] / 10 ** len(decimals)
    return int(whole.replace(",", "") + decimals) * unit, unit


def read_printed_numbers(path: Path, source: str, tables: Collection[str]) -> list[PrintedNumber]:
    """Read the printed numbers of some tables of a paper, in the file's order; refuse a value that is not a number."""
    rows = list(read_csv_rows(path, _PRINTED_COLUMNS))
    for where, row in rows:
        if not NUMBER.fullmatch(row["value"]):
            raise UserError(f"{where}: value is {row['value']!r}; write it as 1,234, 5.6 or 7.8M")
    selected = (row for _, row in rows if row["source"] == source and row["table"] in tables)
    return [PrintedNumber(*(row[name] for name in PrintedNumber._fields)) for row in selected]


def compare_with_printed(printed: PrintedNumber, counted: float | None, absent: str | None) -> str:
    """Return the verdict on a count (None: not in the dataset) and a printed number.

    `absent` states where a dataset is that is missing here.
    """
    wrong = (
        f"printed number is {printed.note}" if printed.note.startswith(WRONG_NOTE_PREFIX) else ""
    )
    if absent is not None:
        return f"{absent}; {wrong}" if wrong else absent
    if counted is None:
        return "not counted: the dataset has no such split or text"
    if not printed.value:
        return "not printed"
    value, unit = parse_printed_number(printed.value)
    difference = counted - value
    if abs(difference) <= unit / 2 * (1 + 1e-9):  # equal after rounding to the printed digits
        return "equal"
    sign, size = "+" if difference > 0 else "-", format_figure(round(abs(difference), 2))
    differs = f"differs by {sign}{size}" + (
        f" ({100 * difference / value:+.1f} %)" if value else ""
    )
    return wrong or (f"{differs}; {printed.note}" if printed.note else differs)


# Quantities of a split, or of the passages, as dotted keys of statistics.json: sums, and means with the count over
# which each is averaged.
_SUMS = {
    "queries": "queries",
    "labels": "qrels",
    "positives": "relevant.count",
    "passages": "count",
}
_MEANS = {
    "characters per query": ("characters.mean", "queries"),
    "words per query": ("words.mean", "queries"),
    "characters per positive": ("relevant.characters.mean", "relevant.count"),
    "words per positive": ("relevant.words.mean", "relevant.count"),
    "characters per passage, mean": ("characters.mean", "count"),
    "characters per passage, median": ("characters.median", "count"),
    "words per passage, mean": ("words.mean", "count"),
}
PER_QUERY = "positives per query"
QUANTITIES = (*_SUMS, *_MEANS, PER_QUERY)


def count_quantity(statistics: list[Statistics], split: str, quantity: str) -> float | None:
    """Return a quantity over one or several datasets: numbers are summed, lengths are averaged.

    None if a dataset has no such split or nothing to measure, and for the median of several datasets.
    """
    if "median" in quantity and len(statistics) > 1:
        return None
    try:
        if "passage" in quantity:
            parts = [flatten(dataset["passages"]) for dataset in statistics]
        else:
            splits = [dataset["splits"] for dataset in statistics]
            names = split.split("+")
            parts = [
                flatten(own[name]) for own in splits for name in (own if split == "all" else names)
            ]
        if quantity in _SUMS:
            return float(sum(part[_SUMS[quantity]] for part in parts))
        if quantity == PER_QUERY:
            return float(
                sum(part["relevant.count"] for part in parts)
                / sum(part["queries"] for part in parts)
            )
        value, weight = _MEANS[quantity]
        return float(
            sum(part[value] * part[weight] for part in parts) / sum(part[weight] for part in parts)
        )
    except (KeyError, TypeError, ZeroDivisionError):
        # no such split, an older file, a mean of nothing
        return None


def write_statistics(
    *,
    layout: Path,
    artifacts: Annotated[dict[str, Path], JSON],
    presence: Annotated[dict[str, str], JSON],
    out: CsvOut,
) -> None:
    """Write a paper's table of datasets: printed, counted, verdict.

    Args:
        layout: of the table; printed.csv next to it has the printed numbers.
        artifacts: a JSON object: name of a dataset → its artifact's folder.
        presence: a JSON object: name of a dataset that is missing here → where it is, such as `not here (1.0 GB)`.
        out: the table as CSV; .md and .html files are written next to it.
    """
    entry, numbers = read_section(StatisticsLayout, layout), layout.with_name("printed.csv")
    printed = read_printed_numbers(numbers, entry.paper.source, entry.paper.tables)
    _check(printed, numbers, entry, layout)
    opened = {
        name: open_artifact(folder, "dataset", verify=False) for name, folder in artifacts.items()
    }
    counted = {
        name: json.loads(own.path("statistics.json").read_bytes()) for name, own in opened.items()
    }
    lines = list(fill_layout(entry, printed, counted, presence))
    source = f"Source of the printed values: {entry.paper.citation.strip()}."
    notes = [text for text in (entry.note.strip(), source) if text]
    html = PageTable(
        entry.title, _HEAD, [[cell or "–" for cell in line] for line in lines], named_by=1
    )
    text = write_markdown(PageTable(entry.title, _HEAD, lines, align="lllrrl", notes=notes))
    page = render_template("grid.html", title=entry.title, grid=html, notes=notes)
    write_views(out, {".csv": csv_text(_HEAD, lines), ".md": text, ".html": page})


def fill_layout(
    layout: StatisticsLayout,
    printed: list[PrintedNumber],
    statistics: Mapping[str, Statistics],
    presence: Mapping[str, str],
) -> Iterator[list[str]]:
    """Yield a line for every printed number, and for the layout's quantities that are counted but not printed."""
    for name, entry in layout.datasets.items():
        numbers = [number for number in printed if number.dataset == name]
        missing = [dataset for dataset in entry.datasets if dataset not in statistics]
        absent, parts = None, list[Statistics]()
        if entry.datasets and not missing:
            parts = [statistics[dataset] for dataset in entry.datasets]
            known = {(number.split, number.quantity) for number in numbers}
            for more in layout.quantities:
                if (more.split, more.quantity) not in known:
                    table = layout.paper.tables[0]
                    numbers.append(PrintedNumber(table, name, more.split, more.quantity, "", ""))
        else:
            places = dict.fromkeys(presence.get(dataset, "not here") for dataset in missing)
            absent = "; ".join(places) or "not here: not in the catalogue"

        for number in numbers:
            counted = None
            if parts:
                split = entry.splits.get(number.split, number.split)
                counted = count_quantity(parts, split, number.quantity)
            if number.value or counted is not None:
                quantity = (
                    number.quantity
                    if number.split == "all"
                    else f"{number.quantity}, {number.split}"
                )
                verdict = compare_with_printed(number, counted, absent)
                yield [number.table, name, quantity, number.value, format_figure(counted), verdict]


def _check(
    printed: list[PrintedNumber], numbers: Path, layout: StatisticsLayout, path: Path
) -> None:
    """Check that every printed number has its dataset in the layout, and is a quantity that can be counted."""
    if not printed:
        tables = ", ".join(layout.paper.tables)
        raise UserError(
            f"{numbers}: prints nothing of {layout.paper.source} in {tables}; see {path}"
        )
    for number in printed:
        if number.dataset not in layout.datasets:
            raise UserError(
                f"{path}: datasets lacks {number.dataset}, of which {numbers} prints numbers; add it"
            )
    for quantity in [
        *(number.quantity for number in printed),
        *(more.quantity for more in layout.quantities),
    ]:
        if quantity not in QUANTITIES:
            raise UserError(
                f"{numbers}, {path}: {quantity!r} is not a quantity; allowed are {', '.join(QUANTITIES)}"
            )
