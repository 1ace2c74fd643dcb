"""The stage `dataset`: a source streams through checks into Parquet.

Queries and qrels are small and come first, so that most mistakes show before the corpus is read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from tandem.artifact import Draft, Job, write_json, writing
from tandem.data import tables
from tandem.data.collection import ANSWERS, CORPUS, LISTS, QRELS, QUERIES, contents
from tandem.data.options import read_options
from tandem.data.queries import Queries, keep_qrels, read_queries
from tandem.data.sources import Listed, source_class
from tandem.data.statistics import CorpusStatistics, split_statistics
from tandem.data.validate import Hashes, require_all_usable, require_unique, require_unique_hashes
from tandem.errors import UserError
from tandem.progress import Progress, say


# ---- tandem.data.dataset
def run(job: Job) -> None:
    """Make a dataset: corpus.parquet, queries.parquet, qrels.parquet and statistics.json, and where the source has them
    answers.parquet and lists.parquet.

    `job.execution` may hold `path` (the folder to read), `workers` (processes, for a source that uses several) and
    `checksum` and `counts` (the expected ones of the source; others are warnings).
    """
    kind = source_class(str(job.params.get("source")))
    options = read_options(job.params, kind.PARAMS)
    source = kind(job)
    warnings = Warnings(job.key)
    sums = {name: tables.Checksum() for name in ("corpus", "queries", "qrels", "answers", "lists")}
    with writing(job) as draft:
        judged = tables.gather(sums["qrels"].of(source.qrels()), tables.QRELS_SCHEMA)
        answers = tables.gather(sums["answers"].of(source.answers()), tables.ANSWERS_SCHEMA)
        if judged.num_rows == answers.num_rows == 0:
            raise UserError("qrels: empty; a dataset needs judgements of at least one split, or answers")
        rows = sums["queries"].of(source.queries())
        answered = answers["query_id"].to_pylist()
        queries = read_queries(rows, judged, answered, source.places["queries"], options, warnings)
        corpus = CorpusWriter(draft.path(CORPUS), source.places["corpus"], options.title)
        corpus.write(f"dataset {job.key}", source.corpus(), sums["corpus"])
        warnings.count(corpus.statistics.empty, "passages hold no text")
        qrels = keep_qrels(judged, queries, corpus.ids, options, warnings)
        tables.write(draft.path(QUERIES), tables.batches(queries.rows(), tables.QUERIES_SCHEMA), tables.QUERIES_SCHEMA)
        tables.write(draft.path(QRELS), qrels.to_batches(), tables.QRELS_SCHEMA)
        extra = {"answers": keep_answers(answers, queries, draft, warnings)}
        extra["lists"] = keep_lists(sums["lists"].of(source.lists()), queries, corpus.ids, draft, warnings)
        summary = {
            "passages": corpus.statistics.summary(),
            "splits": split_statistics(queries.rows(), tables.rows(qrels), corpus.ids, corpus.statistics),
        }
        checksum = tables.combined(sums.values())
        _compare(job, checksum, _counts(summary), warnings)
        write_json(draft.path("statistics.json"), {**summary, "warnings": warnings.lines})
        draft.facts.update(_counts(summary), **extra, checksum=checksum, warnings=warnings.lines, source=source.facts)


def _compare(job: Job, checksum: str, counted: dict[str, Any], warnings: Warnings) -> None:
    """Warn if the source is not the one that the configuration was written for."""
    expected = job.execution.checksum or job.params.get("checksum")
    if expected and expected != checksum:
        warnings.add(f"the source's checksum is {checksum}, expected {expected}: its content has changed")
    found = {"passages": counted["passages"], **counted["queries"]}
    found |= {f"{split}_qrels": number for split, number in counted["qrels"].items()}
    cut = {name.removesuffix("_queries") for name in job.params if name.endswith("_queries")}
    for name, number in (job.execution.counts or {}).items():
        if found.get(name, 0) != number and name.removesuffix("_qrels") not in cut:
            what = name.replace("_", " ") if name == "passages" or name.endswith("_qrels") else f"{name} queries"
            warnings.add(f"{found.get(name, 0):,} {what}, expected {number:,}")


def _counts(summary: dict[str, Any]) -> dict[str, Any]:
    """Numbers of passages, and of queries and qrels by split."""
    splits = summary["splits"]
    return {
        "passages": summary["passages"]["count"],
        "queries": {split: told["queries"] for split, told in splits.items()},
        "qrels": {split: told["qrels"] for split, told in splits.items()},
    }


# ---- tandem.data.dataset
class CorpusWriter:
    """Writes passages and keeps what later checks need of them: 24 bytes a passage, as much again while it checks.

    Attributes:
        ids: hashes of the document ids, in row order.
        statistics: lengths and repetitions.
    """

    def __init__(self, path: Path, place: str, titles: bool) -> None:
        self.path, self.place, self.titles = path, place, titles
        self.ids, self.statistics = Hashes(), CorpusStatistics()

    def write(self, label: str, rows: Iterable[tuple[str, str, str]], checksum: tables.Checksum) -> None:
        """Write (document id, title, text) of every passage; without `titles` they are blanked.

        A thread reads and checks the next passages while these are measured and written.

        Args:
            label: what is being made, for the progress.
            rows: the passages.
            checksum: takes the rows as they come, titles included.
        Raises:
            UserError: an unusable or repeated id, or no passage at all.
        """
        with Progress(label, 0, "passages") as progress:
            parts = self._measured(tables.ahead(self._checked(rows)), checksum, progress)
            tables.write(self.path, parts, tables.CORPUS_SCHEMA)
            if progress.done == 0:
                raise UserError(f"{self.place}: the corpus is empty; at least one passage is needed")
        require_unique_hashes("document", self.place, self.ids, lambda row: tables.value_at(self.path, "doc_id", row))

    def _checked(self, rows: Iterable[tuple[str, str, str]]) -> Iterator[pa.RecordBatch]:
        """Batches of the passages, their hashes kept: the part that handles Python strings."""
        for docs, titles, texts in tables.columns(rows):
            require_all_usable("document", self.place, len(self.ids) + 1, docs)
            self.ids.add(docs)
            titled = self.titles and any(titles)
            self.statistics.texts.add(map(contents, titles, texts) if titled else texts)
            yield tables.batch_of((docs, titles, texts), tables.CORPUS_SCHEMA)

    def _measured(
        self, parts: Iterable[pa.RecordBatch], checksum: tables.Checksum, progress: Progress
    ) -> Iterator[pa.RecordBatch]:
        """The batches as they are written: the part that Arrow and numpy do without holding up the other."""
        for batch in parts:
            checksum.add(batch)
            if not self.titles:
                blank = pa.array([""] * batch.num_rows, pa.string())
                batch = batch.set_column(1, tables.CORPUS_SCHEMA.field(1), blank)
            self.statistics.measure(batch["title"], batch["text"])
            progress.add(batch.num_rows)
            yield batch


# ---- tandem.data.dataset
def keep_answers(answers: pa.Table, queries: Queries, draft: Draft, warnings: Warnings) -> int:
    """Write answers.parquet with the answers of kept queries, unless the source has none.

    Returns:
        The number of queries with answers.
    Raises:
        UserError: a query with two sets of answers.
    """
    if answers.num_rows == 0:
        return 0
    require_unique("query", "answers", answers["query_id"].to_pylist())
    kept = [(query, told) for query, told in tables.rows(answers) if query in queries.splits]
    warnings.count(sum(not any(one.strip() for one in told) for _, told in kept), "questions have no answer text")
    tables.write(draft.path(ANSWERS), tables.batches(kept, tables.ANSWERS_SCHEMA), tables.ANSWERS_SCHEMA)
    return len(kept)


def keep_lists(rows: Iterable[Listed], queries: Queries, ids: Hashes, draft: Draft, warnings: Warnings) -> int:
    """Write lists.parquet with the source's training lists, unless it has none; what the corpus lacks is dropped.

    Returns:
        The number of rows written.
    Raises:
        UserError: a query whose rows are not together.
    """
    counts: Counter[str] = Counter()
    parts = tables.batches(_kept(_together(rows), queries, ids, counts), tables.LISTS_SCHEMA)
    first = next(parts, None)
    if first is not None:
        tables.write(draft.path(LISTS), chain([first], parts), tables.LISTS_SCHEMA)
    dropped = "rows of training lists name documents or queries that are not kept and were dropped"
    warnings.count(counts["dropped"], dropped)
    return counts["kept"]


def _together(rows: Iterable[Listed]) -> Iterator[Listed]:
    """The rows, unchanged; a `UserError` where a query's are not together."""
    done: set[str] = set()
    for query, group in groupby(rows, key=itemgetter(0)):
        if query in done:
            raise UserError(f"lists: query {query} again; the rows of a query must stand together")
        done.add(query)
        yield from group


def _kept(rows: Iterable[Listed], queries: Queries, ids: Hashes, counts: Counter[str]) -> Iterator[Listed]:
    """The rows whose query and document are kept; `counts` takes how many are `kept` and `dropped`."""
    for columns in tables.columns(rows):
        for row, is_known in zip(zip(*columns, strict=True), ids.has(columns[1]).tolist(), strict=True):
            is_kept = is_known and row[0] in queries.splits
            counts["kept" if is_kept else "dropped"] += 1
            if is_kept:
                yield row


# ---- tandem.data.dataset
class Warnings:
    """Warnings of one dataset, in the order they arose."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Say a warning and keep it."""
        self.lines.append(line)
        say(f"dataset {self.key} · warning: {line}")

    def count(self, number: int, what: str) -> None:
        """Warn of `number` times `what`, unless there are none."""
        if number:
            self.add(f"{number:,} {what}")
