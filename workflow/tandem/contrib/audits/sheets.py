"""Sheets of queries and passages that people fill in: CSV that spreadsheets open safely, and pages for a browser.

DuReader-retrieval §2.3. A sheet is read back whatever spreadsheet saved it.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tandem.data import tables
from tandem.data.collection import LITERAL_MATCH, Collection
from tandem.errors import UserError
from tandem.extras.report.page import FOLDERS, cut_text, render_template
from tandem.extras.spreadsheets import (
    CHARACTERS_PER_PASSAGE,
    FORMULA_MARKS,
    ID_COLUMNS,
    escape_formula,
    join_lines,
    read_filled_rows,
    unescape_formula,
    write_sheet,
)
from tandem.store.files import write_text
from tandem.store.job import Draft

FOLDERS.append(Path(__file__).parent / "assets")
# passages on the page; more would slow a browser down; the CSV has all
_PASSAGES_ON_PAGE = 5000
_TEXT_COLUMNS = ("query", "title", "passage")
_VERDICT_COLUMNS = (*ID_COLUMNS, "verdict")
# The columns of a sheet of unlabelled passages, of one with labels, and of a reviewer's sheet, which has neither labels
# nor scores.
SHEET_COLUMNS = (*ID_COLUMNS, *_TEXT_COLUMNS, "score", "rank", "verdict")
LABELLED_COLUMNS = (*ID_COLUMNS, *_TEXT_COLUMNS, "score", "rank", "label", "verdict")
REVIEW_COLUMNS = (*ID_COLUMNS, *_TEXT_COLUMNS, "verdict")
# the column of a sheet that names the model behind a verdict; empty for a person's verdict
FILLED_BY = "filled_by"
_VERDICTS = {"1": True, "yes": True, "0": False, "no": False}


class SheetRow(NamedTuple):
    """A passage that people are asked about."""

    query_id: str
    doc_id: str
    query: str
    title: str
    passage: str
    score: str = ""
    rank: str = ""
    label: str = ""  # 1 or 0; empty if it is unlabelled


def write_pool_sheets(
    draft: Draft,
    pairs: pa.Table,
    queries: dict[str, str],
    collection: Collection,
    key: str,
    scored_by: str,
    labelled: bool = False,
) -> None:
    """Write sheet.csv, and sheet.html, a page with buttons that stores the answers under `key` and saves the CSV.

    `pairs` has rows (query, document, score, rank, relevance) in the order of the queries, best first. If people are
    also asked about labelled passages, their labels are on the sheet.
    """
    texts = collection.texts(pairs["doc_id"].to_pylist())
    rows = []
    for query, doc, score, rank, relevance in tables.iterate_rows(pairs):
        title, passage = map(join_lines, texts[doc])
        row = SheetRow(
            query_id=query,
            doc_id=doc,
            query=join_lines(queries[query]),
            title=title,
            passage=cut_text(passage, CHARACTERS_PER_PASSAGE),
            score=f"{score:.6g}",
            rank=str(rank),
            label=""
            if relevance is None or relevance == LITERAL_MATCH
            else str(int(relevance > 0)),
        )
        rows.append(row)
    columns = LABELLED_COLUMNS if labelled else SHEET_COLUMNS
    write_sheet_files(
        draft.path("sheet.csv"), draft.path("sheet.html"), rows, columns, key, scored_by
    )


def write_sheet_files(
    sheet: Path,
    page: Path,
    rows: Sequence[SheetRow],
    columns: Sequence[str],
    key: str,
    scored_by: str = "",
) -> None:
    """Write a sheet with these columns, the last of them empty, and a page on which it can also be filled in."""
    cells = []
    for row in rows:
        values = row._asdict() | {
            name: escape_formula(getattr(row, name)) for name in _TEXT_COLUMNS
        }
        cells.append([values.get(name, "") for name in columns])
    write_sheet(sheet, columns, cells)

    # The page has only whole queries, as many as fit.
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.query_id)]
    ends = [end for end in accumulate(map(len, groups), initial=0) if end <= _PASSAGES_ON_PAGE]
    text = render_template(
        "sheet.html",
        groups=groups[: len(ends) - 1],
        total=len(rows),
        shown=ends[-1],
        key=key,
        scored_by=scored_by,
        columns=columns,
        formula=FORMULA_MARKS,
    )
    write_text(page, text)


def read_sheet_rows(path: Path) -> list[SheetRow]:
    """Read a sheet that `write_pool_sheets` has written, with or without labels, with the texts as they were."""
    rows = []
    for _, (query_id, doc_id, query, title, passage, *more) in read_filled_rows(
        path, LABELLED_COLUMNS[:-1]
    ):
        texts = map(unescape_formula, (query, title, passage))
        rows.append(SheetRow(query_id, doc_id, *texts, *more))
    return rows


Pair = tuple[str, str]  # query id, document id
Require = Callable[[str, str, str], None]  # refuses (place, query id, document id)


def read_verdicts(path: Path, require: Require) -> tuple[dict[Pair, bool], set[Pair]]:
    """Return the verdicts of a filled sheet, and the pairs whose verdicts a language model filled in.

    Rows without a verdict are left out. A `UserError` for an invalid verdict, a pair that `require` refuses, or two
    rows that contradict each other.
    """
    verdicts: dict[Pair, bool] = {}
    row_of: dict[Pair, int] = {}
    machine_made = set()
    for row, (query, doc, verdict, model) in read_filled_rows(path, _VERDICT_COLUMNS, [FILLED_BY]):
        if not verdict:
            continue
        if model:
            machine_made.add((query, doc))
        where, relevant = f"{path}:{row}", _VERDICTS.get(verdict.lower())
        if relevant is None:
            raise UserError(
                f"{where}: verdict is {verdict[:40]!r}; allowed are 1, 0, yes, no or nothing"
            )
        require(where, query, doc)
        before = verdicts.setdefault((query, doc), relevant)
        first = row_of.setdefault((query, doc), row)
        if before != relevant:
            here, there = (f"{'' if value else 'not '}relevant" for value in (relevant, before))
            both = f"{doc} for query {query} is {here} here and {there} in row {first}"
            raise UserError(f"{where}: {both}; keep one of the rows")
    return verdicts, machine_made
