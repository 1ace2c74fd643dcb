"""The command `statistics`: what papers print about datasets beside what their artifacts count."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tandem.config.loading import read_section
from tandem.config.tables import CountedDataset, StatisticsLayout
from tandem.errors import UserError
from tandem.evaluation.layouts import WRONG, csv_rows
from tandem.report.flags import csv_out, parse_json, read_flags
from tandem.report.grid import UNITS, Grid, csv_text, markdown
from tandem.report.page import render
from tandem.report.sections import number_text
from tandem.stages.base import flatten
from tandem.store.artifact import open_artifact
from tandem.store.files import write_text

HEAD = ["table", "dataset", "quantity", "printed", "counted", "verdict"]
PRINTED = ["source", "table", "dataset", "split", "quantity", "value", "note"]
NUMBER = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?([KM]?)")
Statistics = dict[str, Any]  # statistics.json of a dataset


class PrintedNumber(NamedTuple):
    """A line of config/statistics/printed.csv: what a paper prints about a dataset, `value` empty if nothing.

    `split` may be several joined by `+`, or `all`; `note` begins with `wrong: ` if the number is known to be wrong.
    """

    table: str
    dataset: str
    split: str
    quantity: str
    value: str
    note: str

    @property
    def number(self) -> float:
        """The value as a number."""
        return _parse(self.value)[0]

    def equals(self, counted: float) -> bool:
        """Whether the count, rounded as the printed value is, is that value."""
        value, unit = _parse(self.value)
        return abs(counted - value) <= unit / 2 * (1 + 1e-9)


def _parse(text: str) -> tuple[float, float]:
    """A printed number and the unit of its last digit."""
    matched = NUMBER.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is no printed number")
    whole, decimals, suffix = matched.groups()
    decimals = decimals or ""
    unit = UNITS[suffix] / 10 ** len(decimals)
    return int(whole.replace(",", "") + decimals) * unit, unit


def read_printed_numbers(path: Path, source: str, tables: Iterable[str]) -> list[PrintedNumber]:
    """The printed numbers of some tables of a paper, in the file's order.

    Raises:
        UserError: no such file, other columns, or a value that is no number.
    """
    rows = csv_rows(path, PRINTED)
    selected = set(tables)
    numbers = []
    for row in rows:
        if not NUMBER.fullmatch(row["value"] or ""):
            raise UserError(f"{path}:{rows.line_num}: value is {row['value']!r}; write it as 1,234, 5.6 or 7.8M")
        if row["source"] == source and row["table"] in selected:
            numbers.append(PrintedNumber(*(row[name] for name in PRINTED[1:])))
    return numbers


def verdict(printed: PrintedNumber, counted: float | None, absent: str | None) -> str:
    """Compare a count (None: not in the dataset) with a printed number; `absent` tells where a missing dataset is."""
    wrong = f"printed number is {printed.note}" if printed.note.startswith(WRONG) else ""
    if absent is not None:
        return "; ".join(part for part in (absent, wrong) if part)
    if counted is None:
        return "not counted: the dataset has no such split or text"
    if not printed.value:
        return "not printed"
    if printed.equals(counted):
        return "equal"
    difference = counted - printed.number
    sign = "+" if difference > 0 else "-"
    size = number_text(round(abs(difference), 2))
    differs = f"differs by {sign}{size} ({100 * difference / printed.number:+.1f} %)"
    return wrong or (f"{differs}; {printed.note}" if printed.note else differs)


# Of a split, or of the passages, by the dotted keys of statistics.json: sums, and means with what they are means over.
SUMS = {"queries": "queries", "labels": "qrels", "positives": "relevant.count", "passages": "count"}
MEANS = {
    "characters per query": ("characters.mean", "queries"),
    "words per query": ("words.mean", "queries"),
    "characters per positive": ("relevant.characters.mean", "relevant.count"),
    "words per positive": ("relevant.words.mean", "relevant.count"),
    "characters per passage, mean": ("characters.mean", "count"),
    "characters per passage, median": ("characters.median", "count"),
    "words per passage, mean": ("words.mean", "count"),
}
PER_QUERY = "positives per query"
QUANTITIES = (*SUMS, *MEANS, PER_QUERY)


def count(statistics: list[Statistics], split: str, quantity: str) -> float | None:
    """A quantity over one or several datasets: numbers are added up, lengths averaged over what they are lengths of.

    None where a dataset has no such split, or nothing that is measured, and for a median of several datasets.
    """
    if "median" in quantity and len(statistics) > 1:
        return None
    try:
        if "passage" in quantity:
            parts = [flatten(dataset["passages"]) for dataset in statistics]
        else:
            splits = [dataset["splits"] for dataset in statistics]
            names = split.split("+")
            parts = [flatten(own[name]) for own in splits for name in (own if split == "all" else names)]
        if quantity in SUMS:
            return float(sum(part[SUMS[quantity]] for part in parts))
        if quantity == PER_QUERY:
            return float(sum(part["relevant.count"] for part in parts) / sum(part["queries"] for part in parts))
        value, weight = MEANS[quantity]
        return float(sum(part[value] * part[weight] for part in parts) / sum(part[weight] for part in parts))
    except (KeyError, TypeError, ZeroDivisionError):  # no such split, an older file, a mean of nothing
        return None


class Line(NamedTuple):
    """A line of the table, each cell as text; see `HEAD`."""

    table: str
    dataset: str
    quantity: str
    printed: str
    counted: str
    verdict: str


def main(words: list[str]) -> int:
    """`statistics --layout FILE --artifacts JSON --presence JSON --out …/<table>.csv`.

    The printed numbers are those of printed.csv beside the layout. `--artifacts` maps the name of a dataset to its
    artifact's folder, `--presence` that of one that is not here to where it is, such as `not here (1.0 GB)`.
    Writes <table>.csv, .md and .html side by side.
    """
    flags = read_flags(words, ("layout", "artifacts", "presence", "out"))
    out, path = csv_out(flags), Path(flags["layout"])
    layout, numbers = read_section(StatisticsLayout, path), path.with_name("printed.csv")
    printed = read_printed_numbers(numbers, layout.paper.source, layout.paper.tables)
    expected = "a JSON object of texts by dataset name"
    artifacts, presence = (parse_json(f, flags[f], dict[str, str], expected) for f in ("artifacts", "presence"))
    _check(printed, numbers, layout, path)
    statistics = {name: _statistics(Path(folder)) for name, folder in artifacts.items()}
    lines = list(fill(layout, printed, statistics, presence))
    source = f"Source of the printed values: {layout.paper.citation.strip()}."
    notes = [text for text in (layout.note.strip(), source) if text]
    html = Grid(layout.title, HEAD, [[cell or "–" for cell in line] for line in lines], named_by=1)
    write_text(out, csv_text(HEAD, lines))
    write_text(out.with_suffix(".md"), markdown(Grid(layout.title, HEAD, lines, align="lllrrl", notes=notes)))
    write_text(out.with_suffix(".html"), render("grid.html", title=layout.title, grid=html, notes=notes))
    return 0


def fill(
    layout: StatisticsLayout,
    printed: list[PrintedNumber],
    statistics: Mapping[str, Statistics],
    presence: Mapping[str, str],
) -> Iterator[Line]:
    """A line for every printed number, and for the layout's quantities that can be counted but are not printed."""
    for name, stand_in in layout.datasets.items():
        own = [number for number in printed if number.dataset == name]
        known = {(number.split, number.quantity) for number in own}
        more = [
            PrintedNumber(layout.paper.tables[0], name, quantity.split, quantity.quantity, "", "")
            for quantity in layout.quantities
            if (quantity.split, quantity.quantity) not in known
        ]
        absent = _absent(stand_in, statistics, presence)
        for number in [*own, *(more if absent is None else ())]:
            parts = [statistics[dataset] for dataset in stand_in.datasets] if absent is None else []
            split = stand_in.splits.get(number.split, number.split)
            counted = count(parts, split, number.quantity) if parts else None
            if number.value or counted is not None:
                quantity = number.quantity if number.split == "all" else f"{number.quantity}, {number.split}"
                cells = number.table, name, quantity, number.value, number_text(counted)
                yield Line(*cells, verdict(number, counted, absent))


def _absent(stand_in: CountedDataset, statistics: Mapping[str, Statistics], presence: Mapping[str, str]) -> str | None:
    """Where a dataset is that is not here, wholly or in part; None if it is here."""
    missing = [name for name in stand_in.datasets if name not in statistics]
    if stand_in.datasets and not missing:
        return None
    places = dict.fromkeys(presence.get(name, "not here") for name in missing)
    return "; ".join(places) or "not here: not in the catalogue"


def _check(printed: list[PrintedNumber], numbers: Path, layout: StatisticsLayout, path: Path) -> None:
    """Every printed number must have its dataset in the layout, and be a quantity that can be counted."""
    if not printed:
        tables = ", ".join(layout.paper.tables)
        raise UserError(f"{numbers}: prints nothing of {layout.paper.source} in {tables}; see {path}")
    for number in printed:
        if number.dataset not in layout.datasets:
            raise UserError(f"{path}: datasets lacks {number.dataset}, of which {numbers} prints numbers; add it")
    quantities = [number.quantity for number in printed] + [quantity.quantity for quantity in layout.quantities]
    for quantity in quantities:
        if quantity not in QUANTITIES:
            raise UserError(f"{numbers}, {path}: {quantity!r} is no quantity; allowed are {', '.join(QUANTITIES)}")


def _statistics(folder: Path) -> Statistics:
    artifact = open_artifact(folder, "dataset", verify=False)
    statistics: Statistics = json.loads(artifact.path("statistics.json").read_text(encoding="utf-8"))
    return statistics
