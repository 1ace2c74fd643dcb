"""The sheet of wrong results: written for an annotator, and read back once it is filled in."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tandem.analysis.types import SHORT, TYPES
from tandem.audits.false_negatives.sheet import CHARACTERS, safe
from tandem.audits.false_negatives.verdicts import filled_rows
from tandem.errors import UserError
from tandem.store.artifact import Artifact
from tandem.store.job import Draft

SHEET, PAIRS = "sheet.csv", "pairs.parquet"
SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("doc_id", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float64()),
        ("query", pa.string()),
        ("title", pa.string()),
        ("passage", pa.string()),
        ("positive", pa.string()),
        ("positive_rank", pa.int32()),
        ("guess", pa.string()),
        ("why", pa.string()),
    ]
)
TEXTS = ("query", "title", "passage", "positive", "why")
OWN = ("type", "note")  # the annotator's columns
NEEDED = ("query_id", "doc_id", "type")


@dataclass(frozen=True)
class Row:
    """A wrong result: a passage that is no labelled positive among the first of a query.

    Attributes:
        positive: the text of the best ranked labelled positive, empty if the corpus has none.
        positive_rank: its rank in the run, None where the run lacks it.
        guess: a name of `types.TYPES`.
        why: the signal behind the guess.
    """

    query_id: str
    doc_id: str
    rank: int
    score: float
    query: str
    title: str
    passage: str
    positive: str
    positive_rank: int | None
    guess: str
    why: str


def write_sheet(draft: Draft, rows: Sequence[Row]) -> None:
    """Write pairs.parquet, and sheet.csv: the same with one line a row and empty columns `type` and `note`.

    UTF-8 with a byte-order mark, without which Excel takes it for another encoding.
    """
    told = [asdict(row) for row in rows]
    pq.write_table(pa.Table.from_pylist(told, SCHEMA), draft.path(PAIRS))
    with open(draft.path(SHEET), "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*SCHEMA.names, *OWN])
        for row in told:
            cells = row | {name: _cell(str(row[name])) for name in TEXTS} | {"score": f"{row['score']:.6g}"}
            writer.writerow([*("" if cells[name] is None else cells[name] for name in SCHEMA.names), "", ""])


def read_types(path: Path, errors: Artifact) -> list[str]:
    """The annotator's types of a filled sheet, those of the answered rows.

    Args:
        path: the sheet; a type is one of Table 10's (`Entity mismatch`) or its short name (`entity`), in any case.
        errors: the artifact whose sheet it was.
    Raises:
        UserError: no such file, no CSV, another type, a pair that is not on the sheet, or one that is there twice.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; name a filled {SHEET}")
    asked = pq.read_table(errors.path(PAIRS), columns=["query_id", "doc_id"])
    open_pairs = set(zip(asked["query_id"].to_pylist(), asked["doc_id"].to_pylist(), strict=True))
    known = {name.casefold(): name for name in TYPES} | SHORT
    types = []
    for number, (query, doc, told) in filled_rows(path, NEEDED):
        if not told:
            continue
        if (query, doc) not in open_pairs:
            found = f"{path}:{number}: {doc} for query {query} is not, or twice, on the sheet of {errors.folder}"
            raise UserError(f"{found}; keep its rows and ids as they were")
        open_pairs.remove((query, doc))
        if told.casefold() not in known:
            raise UserError(f"{path}:{number}: type is {told[:40]!r}; allowed are {', '.join(SHORT)}, or nothing")
        types.append(known[told.casefold()])
    return types


def _cell(text: str) -> str:
    """A text as a cell: white space is one space, a long text is cut, no spreadsheet computes it."""
    line = " ".join(text.split())
    return safe(line if len(line) <= CHARACTERS else f"{line[:CHARACTERS].rstrip()}…")
