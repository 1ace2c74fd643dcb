"""What papers print: printed.csv beside the layouts, by source and table, each number as printed."""

import csv
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tandem.config.tables import TableColumn
from tandem.errors import UserError

COLUMNS = ["source", "table", "dataset", "split", "system", "setting", "metric", "value", "unit", "note"]
WRONG = "wrong: "  # how the note of a number known to be wrong begins


class Printed(NamedTuple):
    """A line of config/papers/printed.csv: what a paper prints about a system; see `COLUMNS`."""

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

        Args:
            where: the key of the layout that names the system.
            system: as printed.
            setting: as the file has it, where the system is printed in several; empty: whatever setting.
            columns: the layout's.
        Raises:
            UserError: no such system or measure in the table, or several lines fit.
        """
        own = [line for line in self.lines if line.system == system and setting in ("", line.setting)]
        if not own:
            known = [(line.system, line.setting if setting else "") for line in self.lines]
            problem = f"{where}: {self.name} prints no {_describe((system, setting))}"
            raise UserError(f"{problem}; it has {_nearest((system, setting), known)}")
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


def _describe(system: tuple[str, str]) -> str:
    """A system, with its setting where one is named."""
    return " in the setting ".join(filter(None, system))


def _nearest(system: tuple[str, str], known: Iterable[tuple[str, str]]) -> str:
    """The known systems nearest to one, else all."""
    names = list(dict.fromkeys(map(_describe, known)))
    return ", ".join(difflib.get_close_matches(_describe(system), names, 3) or names)


def _fits(line: Printed, column: Column) -> bool:
    """Whether a line is of a column's measure, and of its dataset and setting where it names them."""
    of_column = line.metric == column.name and column.dataset_name in ("", line.dataset)
    return of_column and column.setting in ("", line.setting)


def read_printed(path: Path, source: str, table: str) -> PrintedTable:
    """The printed percentages of a table.

    Raises:
        UserError: no such file, source or table, or other columns.
    """
    rows = csv_rows(path, COLUMNS)
    lines = [line for line in (Printed(**row) for row in rows) if line.unit == "percent"]
    known = dict.fromkeys(f"{line.source}, {line.table}" for line in lines)
    own = [line for line in lines if (line.source, line.table) == (source, table)]
    if not own:
        raise UserError(f"{path}: has no {source}, {table}; it has {'; '.join(known)}")
    return PrintedTable(f"{source}, {table}", own)


def csv_rows(path: Path, columns: list[str]) -> "csv.DictReader[str]":
    """The rows of a file of printed numbers, which must have these columns; a `UserError` otherwise."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); it holds the printed numbers") from None
    rows = csv.DictReader(text.splitlines(), strict=True)
    if rows.fieldnames != columns:
        raise UserError(f"{path}: columns are {rows.fieldnames}; they must be {', '.join(columns)}")
    return rows
