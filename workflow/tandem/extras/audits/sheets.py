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
CHARACTERS_PER_PASSAGE = 4000  # of a passage; a spreadsheet's cell ends at 32,767
_FORMULA_MARKS = ("=", "+", "-", "@")  # a cell that begins so is computed by spreadsheets
_DELIMITERS = ",;\t"  # as spreadsheets of different countries save CSV
_PASSAGES_ON_PAGE = 5000  # passages on the page; a browser shows no more in comfort, the CSV has all
_ID_COLUMNS = ("query_id", "doc_id")
_VERDICT_COLUMNS = (*_ID_COLUMNS, "verdict")
FILLED_BY = "filled_by"  # the column of a sheet that names the model behind a verdict; empty where a person decided
_VERDICTS = {"1": True, "yes": True, "0": False, "no": False}
SheetAnswers = dict[str, dict[str, bool]]  # query id → document id → whether it is relevant, in the pool's order


def join_lines(text: str) -> str:
    """Return a text with single spaces for white space, so that a row is a line."""
    return " ".join(text.split())


def escape_formula(text: str) -> str:
    """Return a text with an apostrophe before what a spreadsheet would take for the beginning of a formula."""
    return f"'{text}" if text.startswith(_FORMULA_MARKS) else text


def escape_id(name: str) -> str:
    """Return an id as `escape_formula` does; one that begins with an apostrophe gets another, for `read_id`."""
    return f"'{name}" if name.startswith(("'", *_FORMULA_MARKS)) else name


def read_id(cell: str) -> str:
    """Return the id in a cell that `escape_id` wrote, even if a spreadsheet has dropped the apostrophe."""
    return cell[1:] if cell.startswith(tuple(f"'{mark}" for mark in ("'", *_FORMULA_MARKS))) else cell


def write_sheet(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a sheet in UTF-8 with a byte-order mark, without which Excel takes it for another encoding.

    Ids are written so that no spreadsheet computes them; `escape_formula` does the same for texts.
    """

    def escape_row(row: Sequence[object]) -> list[object]:
        cells = zip(head, row, strict=True)
        return [escape_id(str(cell)) if name in _ID_COLUMNS else cell for name, cell in cells]

    path.write_text(csv_text(head, map(escape_row, rows)), encoding="utf-8-sig", newline="")


def read_filled_rows(
    path: Path, columns: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of some columns of each row of a filled sheet, stripped, ids as they were; no empty rows.

    Cells of `optional` columns follow, empty where the sheet lacks the column. A `UserError` for what is no CSV file in
    UTF-8, a missing column, or a row with too few.
    """
    text = (f"{line}\n" for _, line in iterate_lines(path))
    first = next(text, "")
    rows = csv.reader(chain([first], text), delimiter=max(_DELIMITERS, key=first.count), strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        missing = [name for name in columns if name not in header]
        if missing:
            present = ", ".join(header[:12]) or "nothing"
            raise UserError(f"{path}:1: no column {', '.join(missing)} (found: {present}); keep the sheet's first row")
        places = {name: header.index(name) for name in (*columns, *optional) if name in header}
        needed = max(places[name] for name in columns)

        for number, cells in enumerate(rows, start=2):  # a cell may hold line ends
            stripped = [cell.strip() for cell in cells]
            if not any(stripped):
                continue
            if len(cells) <= needed:
                raise UserError(f"{path}:{number}: {len(cells)} columns; the sheet has {len(header)}")
            values = []
            for name in (*columns, *optional):
                place = places.get(name, len(stripped))
                value = stripped[place] if place < len(stripped) else ""
                values.append(read_id(value) if name in _ID_COLUMNS else value)
            yield number, values
    except csv.Error as error:
        raise UserError(f"{path}: not valid CSV ({error}); save the sheet as CSV again") from None


class SheetRow(NamedTuple):
    """Describe a passage that annotators are asked about."""

    query_id: str
    doc_id: str
    query: str
    title: str
    passage: str
    score: str
    rank: int


SHEET_COLUMNS = (*SheetRow._fields, "verdict")


def write_pool_sheets(
    draft: Draft, pairs: pa.Table, queries: dict[str, str], collection: Collection, key: str, scored_by: str
) -> None:
    """Write sheet.csv, and sheet.html, a page with buttons that stores the answers under `key` and saves the CSV.

    `pairs` has rows (query, document, score, rank) in the order of the queries, best first.
    """
    texts = collection.texts(pairs["doc_id"].to_pylist())
    rows = []
    for query, doc, score, rank in tables.iterate_rows(pairs):
        title, passage = map(join_lines, texts[doc])
        row = SheetRow(
            query_id=query,
            doc_id=doc,
            query=join_lines(queries[query]),
            title=title,
            passage=cut_text(passage, CHARACTERS_PER_PASSAGE),
            score=f"{score:.6g}",
            rank=rank,
        )
        rows.append(row)

    cells = []
    for row in rows:
        texts_of_row = map(escape_formula, (row.query, row.title, row.passage))
        cells.append([row.query_id, row.doc_id, *texts_of_row, row.score, row.rank, ""])
    write_sheet(draft.path("sheet.csv"), SHEET_COLUMNS, cells)

    # The page has whole queries only, as many as fit.
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.query_id)]
    ends = [end for end in accumulate(map(len, groups), initial=0) if end <= _PASSAGES_ON_PAGE]
    page = render_template(
        "sheet.html",
        groups=groups[: len(ends) - 1],
        total=len(rows),
        shown=ends[-1],
        key=key,
        scored_by=scored_by,
        columns=SHEET_COLUMNS,
        formula=_FORMULA_MARKS,
    )
    write_text(draft.path("sheet.html"), page)


def read_judgements(collection: Collection, split: str) -> dict[str, dict[str, int]]:
    """Read query id → document id → relevance of a split, in file order; empty where nothing is judged.

    A dataset of questions with answers has no qrels.
    """
    splits = pq.read_table(collection.artifact.path(QRELS), columns=["split"])["split"].unique()
    return collection.qrels(split) if split in splits.to_pylist() else {}


def run(job: Job[RelabelParams]) -> None:
    """Write the split's judgements with the positives that annotators, or the judges, found in a pool.

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
    facts: dict[str, str | float] = {"verdict": "machine"}
    if path:
        answers, machine_made = read_sheet_answers(Path(path), job.params.fingerprint, pool)
        facts["sheet"] = Path(path).name
        if machine_made:
            facts["machine_made"] = machine_made
        else:
            facts["verdict"] = "annotators"
    else:
        threshold = pooled.threshold if job.params.threshold is None else job.params.threshold
        facts["threshold"] = threshold
        answers = judge_by_machine(pool, threshold)

    judged = read_judgements(collection, split)
    before, added = [], []
    for query, relevances in judged.items():
        before += [(query, doc, relevance, split) for doc, relevance in relevances.items()]
    for query, verdicts in answers.items():
        added += [(query, doc, 1, split) for doc, is_relevant in verdicts.items() if is_relevant]
    changes = describe_changes(collection.queries(split), judged, answers)
    with writing(job) as draft:
        tables.write_batches(
            draft.path(QRELS), tables.make_batches([*before, *added], tables.QRELS_SCHEMA), tables.QRELS_SCHEMA
        )
        write_json(draft.path("changes.json"), {"split": split, **facts, **changes})
        if machine_made:
            warn(job, draft, f"a language model gave {machine_made:,} of the sheet's verdicts, not annotators")
        draft.facts |= {**facts, "qrels": len(before) + len(added), "new_positives": len(added)}


def judge_by_machine(pool: Artifact, threshold: float) -> SheetAnswers:
    """Return the judges' verdict on every passage of the sheet: positive if its score is above the threshold.

    Scores of a pool that was ranked without judges are no probabilities, which is a `UserError`.
    """
    if not any(role.startswith("judge.") for role in pool.upstream):
        raise UserError(f"{pool.folder}: was ranked without a judge and has no verdict; name a filled sheet or a judge")
    answers: SheetAnswers = {}
    for query, doc, score, is_open in tables.stream_rows(
        pool.path("pool.parquet"), "query_id", "doc_id", "score", "asked"
    ):
        if is_open:
            answers.setdefault(query, {})[doc] = score > threshold
    return answers


def read_sheet_answers(path: Path, expected: str | None, pool: Artifact) -> tuple[SheetAnswers, int]:
    """Return the sheet's verdicts, query by query in the pool's order, and how many of them a language model filled in.

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
    for row, (query, doc, verdict, model) in read_filled_rows(path, _VERDICT_COLUMNS, [FILLED_BY]):
        if not verdict:
            continue
        if model:
            machine_made.add((query, doc))
        where, relevant = f"{path}:{row}", _VERDICTS.get(verdict.lower())
        if relevant is None:
            raise UserError(f"{where}: verdict is {verdict[:40]!r}; allowed are 1, 0, yes, no or nothing")
        _require_open(where, query, doc, pooled, pool.folder)
        first, before = verdicts.setdefault((query, doc), (row, relevant))
        if before != relevant:
            here, there = (f"{'' if value else 'not '}relevant" for value in (relevant, before))
            both = f"{doc} for query {query} is {here} here and {there} in row {first}"
            raise UserError(f"{where}: {both}; keep one of the rows")
    answers: SheetAnswers = {}
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


def describe_changes(
    queries: dict[str, str], judged: dict[str, dict[str, int]], answers: SheetAnswers, least: int = 1
) -> dict[str, object]:
    """Describe the effect of new labels: the mean number of positives and the share of queries with new ones.

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
