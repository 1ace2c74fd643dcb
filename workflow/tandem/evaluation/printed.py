"""What papers print: the lines of config/papers/printed.csv, looked up by a table's columns and a system's name."""

import csv
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tandem.config.tables import TableColumn
from tandem.data.reading import lines, parse_number
from tandem.errors import UserError

WRONG = "wrong: "  # how the note of a number known to be wrong begins


class Printed(NamedTuple):
    """A line of config/papers/printed.csv: what a paper prints about a system."""

    source: str
    table: str
    dataset: str
    split: str
    system: str
    setting: str
    metric: str
    value: str
    unit: str
    note: str


class Column(TableColumn):
    """A measure, under the name that the paper prints."""

    name: str

    @property
    def id(self) -> str:
        """What distinguishes a column from every other: `RR@10`, `natural-questions RR@10`."""
        return f"{self.dataset} {self.measure}".strip()

    @property
    def label(self) -> str:
        """The name as printed and as ir-measures has it: `MRR@10 (RR@10)`, with its dataset where there are several."""
        both = self.name if self.name == self.measure else f"{self.name} ({self.measure})"
        where = ", ".join(filter(None, (self.dataset_name, self.setting)))
        return f"{where}: {both}" if where else both


@dataclass(frozen=True)
class PrintedTable:
    """The lines of printed.csv that belong to one table of a source."""

    name: str
    lines: list[Printed]

    def of_row(
        self, where: str, system: str, setting: str, columns: Sequence[Column]
    ) -> tuple[dict[str, float | None], dict[str, str]]:
        """A system's printed values in percent by column, and why some are known to be wrong.

        An empty `setting` is any. A `UserError`, beginning with `where`, if the table has no such system or measure, or
        several lines fit.
        """
        own = [line for line in self.lines if line.system == system and setting in ("", line.setting)]
        if not own:
            names = list(dict.fromkeys(_describe(line.system, line.setting if setting else "") for line in self.lines))
            name = _describe(system, setting)
            near = ", ".join(difflib.get_close_matches(name, names, 3) or names)
            raise UserError(f"{where}: {self.name} prints no {name}; it has {near}")
        values: dict[str, float | None] = {}
        wrong = {}
        for column in columns:
            if not column.printed:
                continue
            if not any(_fits(line, column) for line in self.lines):
                raise UserError(f"{where}: {self.name} prints no {column.label}; set `printed: false` for that column")
            fitting = [line for line in own if _fits(line, column)]
            if len(fitting) > 1:
                settings = "; ".join(line.setting for line in fitting)
                raise UserError(
                    f"{where}: {self.name} prints several {column.name} of {system}; add one setting of: {settings}"
                )
            values[column.id] = float(fitting[0].value) if fitting else None
            if fitting and fitting[0].note.startswith(WRONG):
                wrong[column.id] = fitting[0].note.removeprefix(WRONG)
        return values, wrong


def _describe(system: str, setting: str) -> str:
    return " in the setting ".join(filter(None, (system, setting)))


def _fits(line: Printed, column: Column) -> bool:
    of_column = line.metric == column.name and column.dataset_name in ("", line.dataset)
    return of_column and column.setting in ("", line.setting)


def read_printed(path: Path, source: str, table: str) -> PrintedTable:
    """The printed percentages of a table.

    Raises:
        UserError: no such file, source or table, other columns, or a value that is no number.
    """
    status = path.stat() if path.is_file() else None  # what is missing is named by the reader
    printed = _percentages(path, status and (status.st_mtime_ns, status.st_size))
    known = dict.fromkeys(f"{row.source}, {row.table}" for _, row in printed)
    if own := [(where, row) for where, row in printed if (row.source, row.table) == (source, table)]:
        for where, row in own:
            parse_number(where, "value", row.value)
        return PrintedTable(f"{source}, {table}", [row for _, row in own])
    raise UserError(f"{path}: has no {source}, {table}; it has {'; '.join(known)}")


@cache
def _percentages(path: Path, state: tuple[int, int] | None) -> list[tuple[str, Printed]]:
    """(`file:line`, line) of all percentages of a file, read once while it stays unchanged: eleven tables ask."""
    rows = ((where, Printed(**row)) for where, row in csv_rows(path, list(Printed._fields)))
    return [(where, row) for where, row in rows if row.unit == "percent"]


def csv_rows(path: Path, columns: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """(`file:line`, row) of a file of printed numbers, which must have these columns; a `UserError` otherwise."""
    # the reader of data counts lines, and names those that are no UTF-8
    rows = csv.DictReader((line for _, line in lines(path)), strict=True)
    try:
        if rows.fieldnames != columns:
            raise UserError(f"{path}: columns are {rows.fieldnames}; they must be {', '.join(columns)}")
        for row in rows:
            if None in row or None in row.values():
                raise UserError(f"{path}:{rows.line_num}: not {len(columns)} columns; quote a text with commas")
            yield f"{path}:{rows.line_num}", row
    except csv.Error as error:
        raise UserError(f"{path}:{rows.line_num}: no valid CSV, {error}") from None
