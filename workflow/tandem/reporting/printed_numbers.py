"""What papers print about systems, from printed.csv: by source, table, system and measure, each as printed."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.errors import UserError
from tandem.reporting.printed import WRONG, table_rows

if TYPE_CHECKING:
    from tandem.reporting.layout import Column

COLUMNS = ["source", "table", "dataset", "split", "system", "setting", "metric", "value", "unit", "note"]


@dataclass(frozen=True)
class Numbers:
    """The lines of printed.csv that belong to one table of a source."""

    table: str
    lines: list[dict[str, str]]

    def of_row(
        self, where: str, system: str, setting: str, columns: Sequence["Column"]
    ) -> tuple[dict[str, float | None], dict[str, str]]:
        """A system's printed values in percent by column, and why some are known to be wrong.

        Args:
            where: the key that asks.
            system: as printed.
            setting: as the file has it, where the system is printed in several; empty: whatever setting.
            columns: the layout's.
        Raises:
            UserError: no such system or measure in the table, or several lines fit.
        """
        own = [line for line in self.lines if line["system"] == system and setting in ("", line["setting"])]
        if not own:
            asked, known = (system, setting), [(line["system"], line["setting"]) for line in self.lines]
            raise UserError(f"{where}: {self.table} prints no {_words(asked)}; {_near(asked, known)}")
        values: dict[str, float | None] = {}
        wrong = {}
        for column in columns:
            if not column.printed:
                continue
            if not any(_fits(line, column) for line in self.lines):
                raise UserError(f"{where}: {self.table} prints no {column.label}; set `printed: false` for that column")
            fitting = [line for line in own if _fits(line, column)]
            if len(fitting) > 1:
                settings = "; ".join(line["setting"] for line in fitting)
                raise UserError(
                    f"{where}: {self.table} prints several {column.name} of {system}; add one setting of: {settings}"
                )
            values[column.id] = float(fitting[0]["value"]) if fitting else None
            if fitting and fitting[0]["note"].startswith(WRONG):
                wrong[column.id] = fitting[0]["note"].removeprefix(WRONG)
        return values, wrong


def _words(names: tuple[str, str]) -> str:
    """A system, with its setting where one is named."""
    return " in the setting ".join(filter(None, names))


def _near(asked: tuple[str, str], known: Iterable[tuple[str, str]]) -> str:
    """What is there: the nearest to what was asked, else everything."""
    words = list(dict.fromkeys(_words(one if asked[1] else (one[0], "")) for one in known))
    return f"it has {', '.join(difflib.get_close_matches(_words(asked), words, 3) or words)}"


def _fits(line: dict[str, str], column: "Column") -> bool:
    """Whether a line is of a column's measure, and of its dataset and setting where it names them."""
    there = line["metric"] == column.name and column.dataset_name in ("", line["dataset"])
    return there and column.setting in ("", line["setting"])


def read_numbers(path: Path, source: str, table: str) -> Numbers:
    """The printed percentages of a table.

    Raises:
        UserError: no such file, source or table, or other columns.
    """
    rows = table_rows(path, COLUMNS)
    lines = [row for row in rows if row["unit"] == "percent"]
    known = dict.fromkeys(f"{line['source']}, {line['table']}" for line in lines)
    found = [line for line in lines if (line["source"], line["table"]) == (source, table)]
    if not found:
        raise UserError(f"{path}: has no {source}, {table}; it has {'; '.join(known)}")
    return Numbers(f"{source}, {table}", found)
