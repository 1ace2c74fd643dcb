"""Reading a filled sheet back: whatever spreadsheet saved it, every mistake is one line with its row."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tandem.data.reading import lines
from tandem.errors import UserError

NEEDED = ("query_id", "doc_id", "verdict")
VERDICTS = {"1": True, "yes": True, "0": False, "no": False}
DELIMITERS = ",;\t"  # as spreadsheets of different countries save CSV
LONGEST = 1 << 20  # characters of a cell


@dataclass(frozen=True)
class Verdict:
    """What an annotator said of a passage; `row` counts from 1, the header being the first."""

    row: int
    query: str
    doc: str
    relevant: bool


def read_verdicts(path: Path) -> Iterator[Verdict]:
    """The answered rows of a filled sheet, in its order; rows without a verdict are left out.

    Raises:
        UserError: what `filled_rows` refuses, or a verdict is none of 1, 0, yes, no.
    """
    for number, (query, doc, told) in filled_rows(path, NEEDED):
        if told and told.lower() not in VERDICTS:
            raise UserError(f"{path}:{number}: verdict is {told[:40]!r}; allowed are 1, 0, yes, no or nothing")
        if told:
            yield Verdict(number, query, doc, VERDICTS[told.lower()])


def filled_rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Number and needed cells of each row of a filled sheet, stripped; empty rows are left out.

    Raises:
        UserError: no CSV file in UTF-8, a column is missing, or a row has too few.
    """
    rows = _rows(path)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    missing = [name for name in needed if name not in header]
    if missing:
        found = ", ".join(header[:12]) or "nothing"
        raise UserError(f"{path}:1: no column {', '.join(missing)} (found: {found}); keep the sheet's first row")
    columns = [header.index(name) for name in needed]
    for number, cells in rows:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) <= max(columns):
            raise UserError(f"{path}:{number}: {len(cells)} columns; the sheet has {len(header)}")
        yield number, [cells[at].strip() for at in columns]


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(number, cells) of each row; a cell may hold line ends."""
    text = (f"{line}\n" for _, line in lines(path))
    first = next(text, "")
    delimiter = max(DELIMITERS, key=first.count)

    try:
        yield from enumerate(csv.reader(chain([first], text), delimiter=delimiter, strict=True), start=1)
    except csv.Error as error:
        raise UserError(f"{path}: not valid CSV ({error}); save the sheet as CSV again") from None
