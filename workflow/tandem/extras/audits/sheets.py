"""Sheets that annotators fill in, and the stage `relabel`: judgements with the labels that they, or judges, give.

DuReader-retrieval §2.3. A sheet is CSV that spreadsheets open safely, read back whatever spreadsheet saved it.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import warn
from tandem.data import tables
from tandem.data.collection import QRELS, Collection
from tandem.data.reading import iterate_lines
from tandem.errors import UserError
from tandem.report.page import FOLDERS, cut_text, render_template
from tandem.retrieval.inputs import require_dataset
from tandem.stages.evaluation import FalseNegativesParams, RelabelParams
from tandem.store.artifact import Artifact
from tandem.store.files import csv_text, sha256, write_json, write_text
from tandem.store.job import Draft, Job, writing

FOLDERS.append(Path(__file__).parent / "assets")
CHARACTERS = 4000  # of a passage; a spreadsheet's cell ends at 32,767
FORMULA = ("=", "+", "-", "@")  # a cell that begins so is computed by spreadsheets
DELIMITERS = ",;\t"  # as spreadsheets of different countries save CSV
PAGE = 5000  # passages on the page; a browser shows no more in comfort, the CSV has all
IDS = ("query_id", "doc_id")
FILLED = (*IDS, "verdict")
FILLED_BY = "filled_by"  # the column of a sheet that names the model behind a verdict; empty where a person decided
VERDICTS = {"1": True, "yes": True, "0": False, "no": False}
Answers = dict[str, dict[str, bool]]  # query id → document id → whether it is relevant, in the pool's order


def one_line(text: str) -> str:
    """A text with single spaces for white space, so that a row is a line."""
    return " ".join(text.split())


def safe(text: str) -> str:
    """A text with an apostrophe before what a spreadsheet would take for the beginning of a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def safe_id(name: str) -> str:
    """As `safe`, for an id; an id that begins with an apostrophe gets another, so that `plain_id` reads it back."""
    return f"'{name}" if name.startswith(("'", *FORMULA)) else name


def plain_id(cell: str) -> str:
    """The id in a cell that `safe_id` wrote, even if a spreadsheet has dropped the apostrophe."""
    return cell[1:] if cell.startswith(tuple(f"'{mark}" for mark in ("'", *FORMULA))) else cell


def write_sheet(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a sheet in UTF-8 with a byte-order mark, without which Excel takes it for another encoding.

    The columns of `IDS` are written so that no spreadsheet computes them; `safe` does the same for texts.
    """
    named = [name in IDS for name in head]
    cells = ([safe_id(str(cell)) if own else cell for cell, own in zip(row, named, strict=True)] for row in rows)
    path.write_text(csv_text(head, cells), encoding="utf-8-sig", newline="")


def filled_rows(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of some columns of each row of a filled sheet, stripped, ids as they were; no empty rows.

    Cells of `optional` columns follow, empty where the sheet lacks the column. A `UserError` for what is no CSV file in
    UTF-8, a missing column, or a row with too few.
    """
    text = (f"{line}\n" for _, line in iterate_lines(path))
    first = next(text, "")
    rows = csv.reader(chain([first], text), delimiter=max(DELIMITERS, key=first.count), strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        if missing := [name for name in columns if name not in header]:
            present = ", ".join(header[:12]) or "nothing"
            raise UserError(f"{path}:1: no column {', '.join(missing)} (found: {present}); keep the sheet's first row")
        places = [header.index(name) if name in header else None for name in (*columns, *optional)]
        needed = max(map(header.index, columns))
        for number, cells in enumerate(rows, start=2):  # a cell may hold line ends
            stripped = [cell.strip() for cell in cells]
            if any(stripped) and len(cells) <= needed:
                raise UserError(f"{path}:{number}: {len(cells)} columns; the sheet has {len(header)}")
            if any(stripped):
                own = [stripped[at] if at is not None and at < len(cells) else "" for at in places]
                yield number, [plain_id(c) if n in IDS else c for c, n in zip(own, (*columns, *optional), strict=True)]
    except csv.Error as error:
        raise UserError(f"{path}: not valid CSV ({error}); save the sheet as CSV again") from None


class SheetRow(NamedTuple):
    """A passage that annotators are asked about."""

    query_id: str
    doc_id: str
    query: str
    title: str
    passage: str
    score: str
    rank: int


COLUMNS = (*SheetRow._fields, "verdict")


def write_pool_sheets(
    draft: Draft, pairs: pa.Table, queries: dict[str, str], collection: Collection, key: str, scored_by: str
) -> None:
    """Write sheet.csv, and sheet.html, a page with buttons that stores the answers under `key` and saves the CSV.

    `pairs` has rows (query, document, score, rank) in the order of the queries, best first.
    """
    texts = collection.texts(pairs["doc_id"].to_pylist())
    rows = []
    for query, doc, score, rank in tables.iterate_rows(pairs):
        title, passage = map(one_line, texts[doc])
        cells = one_line(queries[query]), title, cut_text(passage, CHARACTERS), f"{score:.6g}"
        rows.append(SheetRow(query, doc, *cells, rank))
    write_sheet(draft.path("sheet.csv"), COLUMNS, ([*row[:2], *map(safe, row[2:5]), *row[5:], ""] for row in rows))
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.query_id)]
    ends = [end for end in accumulate(map(len, groups), initial=0) if end <= PAGE]
    how = {"key": key, "scored_by": scored_by, "columns": COLUMNS, "formula": FORMULA}
    page = render_template("sheet.html", groups=groups[: len(ends) - 1], total=len(rows), shown=ends[-1], **how)
    write_text(draft.path("sheet.html"), page)


def judgements(collection: Collection, split: str) -> dict[str, dict[str, int]]:
    """Query id → document id → relevance of a split, in file order; empty where nothing is judged.

    A dataset of questions with answers has no qrels.
    """
    splits = pq.read_table(collection.artifact.path(QRELS), columns=["split"])["split"].unique()
    return collection.qrels(split) if split in splits.to_pylist() else {}


def run(job: Job[RelabelParams]) -> None:
    """The split's judgements with the positives that annotators, or the judges, found in a pool.

    Writes qrels.parquet (the dataset's judgements of the split and the new positives) and changes.json.

    Inputs: dataset; pool, of `false_negatives`. `job.execution.path` is a filled sheet; without one the verdict is
    the machine's, of the passages on the sheet. The manifest says so, also where a language model filled in rows of
    the sheet and nobody took its name out of them.
    """
    require_dataset(job, "pool")
    pool, collection = job.inputs["pool"], Collection(job.inputs["dataset"])
    pooled = pool.params_as(FalseNegativesParams)
    split = pooled.split
    if job.params.split not in (None, split):
        raise UserError(f"{pool.folder}: is a pool of split {split}, but split is {job.params.split}")
    path, machine_made = job.execution.path, 0
    facts: dict[str, str | float]
    if path:
        answers, machine_made = sheet_answers(Path(path), job.params.fingerprint, pool)
        facts = {"verdict": "machine" if machine_made else "annotators", "sheet": Path(path).name}
        facts |= {"machine_made": machine_made} if machine_made else {}
    else:
        threshold = pooled.threshold if job.params.threshold is None else job.params.threshold
        facts, answers = {"verdict": "machine", "threshold": threshold}, machine_answers(pool, threshold)
    added = [(query, doc, 1, split) for query, docs in answers.items() for doc, relevant in docs.items() if relevant]
    judged = judgements(collection, split)
    before = [(query, doc, relevance, split) for query, docs in judged.items() for doc, relevance in docs.items()]
    changes = describe(collection.queries(split), judged, answers)
    with writing(job) as draft:
        tables.write_batches(
            draft.path(QRELS), tables.make_batches([*before, *added], tables.QRELS_SCHEMA), tables.QRELS_SCHEMA
        )
        write_json(draft.path("changes.json"), {"split": split, **facts, **changes})
        if machine_made:
            warn(job, draft, f"a language model gave {machine_made:,} of the sheet's verdicts, not annotators")
        draft.facts |= {**facts, "qrels": len(before) + len(added), "new_positives": len(added)}


def machine_answers(pool: Artifact, threshold: float) -> Answers:
    """The judges' verdict on every passage of the sheet: positive if its score is above the threshold.

    Scores of a pool that was ranked without judges are no probabilities, which is a `UserError`.
    """
    if not any(role.startswith("judge.") for role in pool.upstream):
        raise UserError(f"{pool.folder}: was ranked without a judge and has no verdict; name a filled sheet or a judge")
    answers: Answers = {}
    for query, doc, score, is_open in tables.stream_rows(
        pool.path("pool.parquet"), "query_id", "doc_id", "score", "asked"
    ):
        if is_open:
            answers.setdefault(query, {})[doc] = score > threshold
    return answers


def sheet_answers(path: Path, expected: str | None, pool: Artifact) -> tuple[Answers, int]:
    """The sheet's verdicts, query by query in the pool's order, and how many of them a language model filled in.

    Rows without a verdict are left out. A `UserError` for another file than was planned, a verdict that is none, a
    passage that is not in the pool or is labelled already, or two rows that contradict each other.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; name a filled sheet")
    if expected and sha256(path) != expected:
        raise UserError(f"{path}: has changed since this stage was planned; run the command again")
    pooled: dict[str, dict[str, int | None]] = {}  # query → document → its relevance, None where it is not labelled
    for query, doc, relevance in tables.stream_rows(pool.path("pool.parquet"), "query_id", "doc_id", "relevance"):
        pooled.setdefault(query, {})[doc] = relevance
    verdicts: dict[tuple[str, str], tuple[int, bool]] = {}  # (query, document) → row, and whether it is relevant
    machine_made = set()
    for row, (query, doc, verdict, model) in filled_rows(path, FILLED, [FILLED_BY]):
        if not verdict:
            continue
        if model:
            machine_made.add((query, doc))
        where, relevant = f"{path}:{row}", VERDICTS.get(verdict.lower())
        if relevant is None:
            raise UserError(f"{where}: verdict is {verdict[:40]!r}; allowed are 1, 0, yes, no or nothing")
        _require_open(where, query, doc, pooled, pool.folder)
        first, before = verdicts.setdefault((query, doc), (row, relevant))
        if before != relevant:
            here, there = (f"{'' if value else 'not '}relevant" for value in (relevant, before))
            both = f"{doc} for query {query} is {here} here and {there} in row {first}"
            raise UserError(f"{where}: {both}; keep one of the rows")
    answers: Answers = {}
    for query, docs in pooled.items():
        for doc in docs:
            if (query, doc) in verdicts:
                answers.setdefault(query, {})[doc] = verdicts[query, doc][1]
    return answers, len(machine_made)


def _require_open(where: str, query: str, doc: str, pooled: dict[str, dict[str, int | None]], folder: Path) -> None:
    """Refuse a verdict on a passage that is not in the pool, or is labelled already."""
    if query not in pooled:
        raise UserError(f"{where}: query_id {query!r} is not in {folder}; ids must stay as they were")
    if doc not in pooled[query]:
        raise UserError(f"{where}: doc_id {doc!r} was not pooled for query {query}; ids must stay as they were")
    if pooled[query][doc] is not None:
        raise UserError(f"{where}: {doc} is labelled already for query {query}; leave the row out")


def describe(
    queries: dict[str, str], judged: dict[str, dict[str, int]], answers: Answers, least: int = 1
) -> dict[str, object]:
    """The effect of new labels: DuReader-retrieval §2.3 has the mean number of positives and the share of queries.

    A judgement of at least `least` is a positive.
    """
    before = {query: sum(relevance >= least for relevance in judged.get(query, {}).values()) for query in queries}
    new = {query: sum(answers.get(query, {}).values()) for query in queries}
    changed = [query for query in queries if new[query]]
    return {
        "queries": len(queries),
        "asked_about": sum(map(len, answers.values())),
        "new_positives": sum(new.values()),
        "changed": len(changed),
        "percent_changed": round(100 * len(changed) / len(queries), 2),
        "positives_per_query": {
            "before": round(sum(before.values()) / len(queries), 4),
            "after": round((sum(before.values()) + sum(new.values())) / len(queries), 4),
        },
        "changes": {query: {"before": before[query], "after": before[query] + new[query]} for query in changed},
    }
