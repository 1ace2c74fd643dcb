"""Sheets that annotators fill in: CSV that spreadsheets open safely, read back whatever spreadsheet saved it."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from tandem.data.reading import lines
from tandem.errors import UserError

CHARACTERS = 4000  # of a passage; a spreadsheet's cell ends at 32,767
FORMULA = ("=", "+", "-", "@")  # a cell that begins so is computed by spreadsheets
DELIMITERS = ",;\t"  # as spreadsheets of different countries save CSV


def one_line(text: str) -> str:
    """A text with single spaces for white space, so that a row is a line."""
    return " ".join(text.split())


def safe(text: str) -> str:
    """A text that no spreadsheet computes: an apostrophe before what would begin a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def write_sheet(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a sheet in UTF-8 with a byte-order mark, without which Excel takes it for another encoding."""
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


def filled_rows(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of some columns of each row of a filled sheet, stripped; empty rows are left out.

    Cells of `optional` columns follow, empty where the sheet lacks the column.

    Raises:
        UserError: not a CSV file in UTF-8, a column is missing, or a row has too few.
    """
    text = (f"{line}\n" for _, line in lines(path))
    first = next(text, "")
    rows = csv.reader(chain([first], text), delimiter=max(DELIMITERS, key=first.count), strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        if missing := [name for name in columns if name not in header]:
            present = ", ".join(header[:12]) or "nothing"
            raise UserError(f"{path}:1: no column {', '.join(missing)} (found: {present}); keep the sheet's first row")
        places = [header.index(name) for name in columns]
        further = [header.index(name) if name in header else None for name in optional]
        for number, cells in enumerate(rows, start=2):  # a cell may hold line ends
            stripped = [cell.strip() for cell in cells]
            if any(stripped) and len(cells) <= max(places):
                raise UserError(f"{path}:{number}: {len(cells)} columns; the sheet has {len(header)}")
            if any(stripped):
                more = [stripped[at] if at is not None and at < len(cells) else "" for at in further]
                yield number, [*(stripped[at] for at in places), *more]
    except csv.Error as error:
        raise UserError(f"{path}: not valid CSV ({error}); save the sheet as CSV again") from None
