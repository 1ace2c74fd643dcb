"""Sheets that people fill in: CSV that spreadsheets open safely, and that is read back whatever program saved it."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from tandem.data.reading import iterate_lines
from tandem.errors import UserError
from tandem.store.files import csv_text

CHARACTERS_PER_PASSAGE = 4000  # of a passage; a spreadsheet's cell holds at most 32,767
FORMULA_MARKS = ("=", "+", "-", "@")  # spreadsheets compute a cell that begins with one
ID_COLUMNS = ("query_id", "doc_id")
_DELIMITERS = ",;\t"  # as spreadsheets of different countries save CSV


def join_lines(text: str) -> str:
    """Return a text with its white space replaced by single spaces, so that a row is a line."""
    return " ".join(text.split())


def escape_formula(text: str) -> str:
    """Return a text, with an apostrophe before it if a spreadsheet would take its beginning for a formula."""
    return f"'{text}" if text.startswith(FORMULA_MARKS) else text


def escape_id(name: str) -> str:
    """Return an id as `escape_formula` does; one that begins with an apostrophe gets another, for `unescape_id`."""
    return f"'{name}" if name.startswith(("'", *FORMULA_MARKS)) else name


def unescape_formula(cell: str) -> str:
    """Return the text in a cell that `escape_formula` wrote."""
    return cell[1:] if cell.startswith(tuple(f"'{mark}" for mark in FORMULA_MARKS)) else cell


def unescape_id(cell: str) -> str:
    """Return the id in a cell that `escape_id` wrote, even if a spreadsheet has dropped the apostrophe."""
    return (
        cell[1:] if cell.startswith(tuple(f"'{mark}" for mark in ("'", *FORMULA_MARKS))) else cell
    )


def write_sheet(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a sheet in UTF-8 with a byte-order mark; Excel would assume another encoding without it.

    Ids are written so that no spreadsheet computes them; `escape_formula` does the same for texts.
    """

    def escape_row(row: Sequence[object]) -> list[object]:
        cells = zip(head, row, strict=True)
        return [escape_id(str(cell)) if name in ID_COLUMNS else cell for name, cell in cells]

    path.write_text(csv_text(head, map(escape_row, rows)), encoding="utf-8-sig", newline="")


def read_filled_rows(
    path: Path, columns: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of some columns of each row of a filled sheet, stripped, ids unescaped; no empty rows.

    Cells of `optional` columns follow, empty where the sheet lacks the column. A `UserError` for a file that is not CSV
    in UTF-8, a missing column, or a row with too few cells.
    """
    text = (f"{line}\n" for _, line in iterate_lines(path))
    first = next(text, "")
    rows = csv.reader(
        chain([first], text), delimiter=max(_DELIMITERS, key=first.count), strict=True
    )
    try:
        header = [name.strip() for name in next(rows, [])]
        places = _find_columns(path, header, columns, optional)
        needed = max(places[name] for name in columns)
        for number, cells in enumerate(rows, start=2):  # a cell may hold line ends
            stripped = [cell.strip() for cell in cells]
            if not any(stripped):
                continue
            if len(cells) <= needed:
                raise UserError(
                    f"{path}:{number}: {len(cells)} columns; the sheet has {len(header)}"
                )
            values = []
            for name in (*columns, *optional):
                place = places.get(name, len(stripped))
                value = stripped[place] if place < len(stripped) else ""
                values.append(unescape_id(value) if name in ID_COLUMNS else value)
            yield number, values
    except csv.Error as error:
        raise UserError(f"{path}: not valid CSV ({error}); save the sheet as CSV again") from None


def _find_columns(
    path: Path, header: Sequence[str], columns: Sequence[str], optional: Sequence[str]
) -> dict[str, int]:
    """Return the place of each column that a sheet has; refuse a sheet that lacks one of `columns`."""
    missing = [name for name in columns if name not in header]
    if missing:
        present = ", ".join(header[:12]) or "nothing"
        raise UserError(
            f"{path}:1: no column {', '.join(missing)} (found: {present}); keep the sheet's first row"
        )
    return {name: header.index(name) for name in (*columns, *optional) if name in header}
