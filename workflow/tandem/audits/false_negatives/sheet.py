"""The sheet that annotators fill in: as CSV for a spreadsheet, and as a page with buttons that saves the same CSV."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from tandem.data import tables
from tandem.data.collection import Collection
from tandem.reporting.page import render
from tandem.store.files import write_text
from tandem.store.job import Draft

COLUMNS = ("query_id", "doc_id", "query", "title", "passage", "score", "rank", "verdict")
CHARACTERS = 4000  # of a passage; a spreadsheet's cell ends at 32,767
PAGE = 5000  # passages on the page; a browser shows no more in comfort, the CSV has all
FORMULA = ("=", "+", "-", "@")  # a cell that begins so is computed by spreadsheets


@dataclass(frozen=True)
class Asked:
    """One row of the sheet."""

    query_id: str
    doc_id: str
    query: str
    title: str
    passage: str
    score: str
    rank: int


class Sheet:
    """Passages to be asked about, in the order of the queries and best first.

    Args:
        queries: query id → text.
        key: the stage's key, under which the page keeps what was answered.
        scored_by: what the score is.
    """

    def __init__(self, queries: dict[str, str], key: str, scored_by: str) -> None:
        self.queries, self.key, self.scored_by = queries, key, scored_by
        self._parts: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Append rows of a pool."""
        self._parts.append(rows.select(["query_id", "doc_id", "score", "rank"]))

    def write(self, draft: Draft, collection: Collection) -> None:
        """Write sheet.csv (UTF-8 with a byte-order mark, without which Excel takes it for another encoding) and the
        page sheet.html."""
        rows = list(self._rows(collection))
        with open(draft.path("sheet.csv"), "w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for row in rows:
                words = [safe(text) for text in (row.query, row.title, row.passage)]
                writer.writerow([row.query_id, row.doc_id, *words, row.score, row.rank, ""])
        groups = [list(group) for _, group in groupby(rows, key=lambda row: row.query_id)]
        shown, passages = 0, 0
        while shown < len(groups) and passages + len(groups[shown]) <= PAGE:
            passages += len(groups[shown])
            shown += 1
        page = render(
            "sheet.html",
            groups=groups[:shown],
            total=len(rows),
            shown=passages,
            key=self.key,
            scored_by=self.scored_by,
            columns=COLUMNS,
            formula=FORMULA,
        )
        write_text(draft.path("sheet.html"), page)

    def _rows(self, collection: Collection) -> Iterator[Asked]:
        """The rows with their texts: white space is one space, so that a row is a line."""
        table = pa.concat_tables(self._parts)
        texts = collection.texts(table["doc_id"].to_pylist())
        for query, doc, score, rank in tables.rows(table):
            title, passage = (" ".join(text.split()) for text in texts[doc])
            shown = passage if len(passage) <= CHARACTERS else f"{passage[:CHARACTERS].rstrip()}…"
            yield Asked(query, doc, " ".join(self.queries[query].split()), title, shown, f"{score:.6g}", rank)


def safe(text: str) -> str:
    """A text that no spreadsheet computes: an apostrophe before what would begin a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
