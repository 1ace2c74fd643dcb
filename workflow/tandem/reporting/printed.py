"""Numbers as papers print them, and what a count says about them."""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tandem.errors import UserError

COLUMNS = ["source", "table", "dataset", "split", "quantity", "value", "note"]
WRONG = "wrong: "  # how the note of a number known to be wrong begins
NUMBER = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?([KM]?)")
UNITS = {"": 1.0, "K": 1e3, "M": 1e6}


@dataclass(frozen=True)
class Printed:
    """A line of printed.csv: what a paper prints about a dataset.

    Attributes:
        table: the paper's table, or `text` and the section.
        dataset: as the paper names it.
        split: `train`, `dev`, `test`, several joined by `+`, or `all`.
        quantity: a name of `statistics.QUANTITIES`.
        value: as printed: `532,761`, `10.4M`, `2.57`; empty where the table prints none.
        note: what is known about it; `wrong: ` and why, if it is known to be wrong.
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
        return _number(self.value)[0]

    def says(self, counted: float) -> bool:
        """Whether the count, rounded as the printed value is, is that value."""
        value, unit = _number(self.value)
        return abs(counted - value) <= unit / 2 * (1 + 1e-9)


def table_rows(path: Path, columns: list[str]) -> "csv.DictReader[str]":
    """The rows of a file of printed numbers, which must have these columns; a `UserError` otherwise."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); it holds the printed numbers") from None
    rows = csv.DictReader(text.splitlines(), strict=True)
    if rows.fieldnames != columns:
        raise UserError(f"{path}: columns are {rows.fieldnames}; they must be {', '.join(columns)}")
    return rows


def read_printed(path: Path, source: str, tables: Iterable[str]) -> list[Printed]:
    """The printed numbers of some tables of a paper, in the file's order.

    Raises:
        UserError: no such file, other columns, or a value that is no number.
    """
    rows = table_rows(path, COLUMNS)
    wanted = set(tables)
    found = []
    for row in rows:
        if not NUMBER.fullmatch(row["value"] or ""):
            raise UserError(f"{path}:{rows.line_num}: value is {row['value']!r}; write it as 1,234, 5.6 or 7.8M")
        if row["source"] == source and row["table"] in wanted:
            found.append(Printed(*(row[name] for name in COLUMNS[1:])))
    return found


def verdict(printed: Printed, counted: float | None, absent: str | None) -> str:
    """What a count says about a printed number.

    Args:
        printed: the number.
        counted: the count, None where the dataset cannot tell.
        absent: where the dataset is, if it is not here.
    """
    wrong = f"printed number is {printed.note}" if printed.note.startswith(WRONG) else ""
    if absent is not None:
        return "; ".join(part for part in (absent, wrong) if part)
    if counted is None:
        return "not counted: the dataset has no such split or text"
    if not printed.value:
        return "not printed"
    if printed.says(counted):
        return "equal"
    off = counted - printed.number
    differs = f"differs by {_signed(off)} ({100 * off / printed.number:+.1f} %)"
    return wrong or (f"{differs}; {printed.note}" if printed.note else differs)


def number_text(value: float | None) -> str:
    """`8,841,823`, `2.57`; empty where there is none."""
    if value is None:
        return ""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def _signed(value: float) -> str:
    return ("+" if value > 0 else "-") + number_text(round(abs(value), 2))


def _number(text: str) -> tuple[float, float]:
    """A printed number and the unit of its last digit."""
    matched = NUMBER.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is no printed number")
    whole, decimals, suffix = matched.groups()
    decimals = decimals or ""
    unit = UNITS[suffix] / 10 ** len(decimals)
    return int(whole.replace(",", "") + decimals) * unit, unit
