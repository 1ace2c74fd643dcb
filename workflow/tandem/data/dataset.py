"""The stage `dataset`: a source streams through checks into Parquet.

Queries and qrels are small and come first, so that most mistakes show before the corpus is read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter

import pyarrow as pa

from tandem.data import tables
from tandem.data.collection import ANSWERS, CORPUS, LISTS, QRELS, QUERIES
from tandem.data.corpus import CorpusWriter
from tandem.data.judgements import count_negative_grades, judged_too, require_positives, select_qrels
from tandem.data.language import Sample
from tandem.data.sources import Listed, open_source
from tandem.data.statistics import SplitStatistics, split_statistics
from tandem.data.validate import Hashes, Queries, Warnings, read_queries, require_unique
from tandem.errors import UserError
from tandem.stages.data import DatasetParams
from tandem.store.files import write_json
from tandem.store.job import Draft, Job, writing


def run(job: Job[DatasetParams]) -> None:
    """Write corpus.parquet, queries.parquet, qrels.parquet and statistics.json, and where the source has them
    answers.parquet and lists.parquet.

    `job.execution` may hold `path` (the folder to read), `workers` (processes, for a source that uses several) and
    `checksum` and `counts` (the expected ones of the source; others are warnings).
    """
    source = open_source(job)
    warnings = Warnings(f"dataset {job.key}")
    sums = {name: tables.Checksum() for name in ("corpus", "queries", "qrels", "answers", "lists")}
    with writing(job) as draft:
        judged = tables.gather(sums["qrels"].of(source.qrels()), tables.QRELS_SCHEMA)
        answers = tables.gather(sums["answers"].of(source.answers()), tables.ANSWERS_SCHEMA)
        if judged.num_rows == answers.num_rows == 0:
            raise UserError("qrels: empty; a dataset needs judgements of at least one split, or answers")
        rows = sums["queries"].of(source.queries())
        answered = answers["query_id"].to_pylist()
        queries = read_queries(rows, judged, answered, source, job.params, warnings)
        corpus = CorpusWriter(job, source, draft.path(CORPUS))
        corpus.write(sums["corpus"])
        warnings.count(corpus.statistics.empty, "passages hold no text")
        extra: dict[str, int] = {}
        if job.params.near_duplicates is not None:
            judged, extra["near_duplicates"] = judged_too(judged, corpus.path, job.params.near_duplicates)
        qrels = select_qrels(judged, queries, corpus.ids, job.params, warnings, source)
        if not any(query in queries.splits for query in answered):
            require_positives(qrels)
        count_negative_grades(qrels, source.literal_matches, warnings)
        tables.write(draft.path(QUERIES), tables.batches(queries.rows(), tables.QUERIES_SCHEMA), tables.QUERIES_SCHEMA)
        tables.write(draft.path(QRELS), qrels.to_batches(), tables.QRELS_SCHEMA)
        extra["answers"] = write_answers(answers, queries, draft, warnings)
        extra["lists"] = write_lists(sums["lists"].of(source.lists()), queries, corpus.ids, draft, warnings)
        passages = corpus.statistics.summary()
        splits = split_statistics(queries.rows(), tables.rows(qrels), corpus.ids, corpus.statistics)
        checksum = tables.combined(sums.values())
        asked = Sample()
        asked.add(list(queries.texts.values()))
        _compare(job, checksum, passages["count"], splits, warnings)
        summary = {"passages": passages, "splits": splits, "warnings": warnings.lines}
        write_json(draft.path("statistics.json"), summary)
        draft.facts.update(
            passages=passages["count"],
            queries={split: counts["queries"] for split, counts in splits.items()},
            qrels={split: counts["qrels"] for split, counts in splits.items()},
            **extra,
            checksum=checksum,
            texts={"passages": corpus.sample.facts(), "queries": asked.facts()},
            warnings=warnings.lines,
            source=source.facts,
        )
    corpus.parts.remove()


def _compare(
    job: Job[DatasetParams], checksum: str, passages: int, splits: dict[str, SplitStatistics], warnings: Warnings
) -> None:
    """Warn if the source is not the one that the configuration was written for."""
    expected = job.execution.checksum or job.params.checksum
    if expected and expected != checksum:
        warnings.add(f"the source's checksum is {checksum}, expected {expected}: its content has changed")
    actual = {"passages": passages, **{split: counts["queries"] for split, counts in splits.items()}}
    actual |= {f"{split}_qrels": counts["qrels"] for split, counts in splits.items()}
    cut = {split for split in ("train", "dev", "test") if job.params.most_queries(split) is not None}
    for name, number in (job.execution.counts or {}).items():
        if actual.get(name, 0) != number and name.removesuffix("_qrels") not in cut:
            what = name.replace("_", " ") if name == "passages" or name.endswith("_qrels") else f"{name} queries"
            warnings.add(f"{actual.get(name, 0):,} {what}, expected {number:,}")


def write_answers(answers: pa.Table, queries: Queries, draft: Draft, warnings: Warnings) -> int:
    """Write answers.parquet for selected queries, unless the source has none; the number of queries with answers.

    Raises:
        UserError: a query with two sets of answers.
    """
    if answers.num_rows == 0:
        return 0
    require_unique("query", "answers", answers["query_id"].to_pylist())
    rows = [(query, texts) for query, texts in tables.rows(answers) if query in queries.splits]
    warnings.count(sum(not any(text.strip() for text in texts) for _, texts in rows), "questions have no answer text")
    tables.write(draft.path(ANSWERS), tables.batches(rows, tables.ANSWERS_SCHEMA), tables.ANSWERS_SCHEMA)
    return len(rows)


def write_lists(rows: Iterable[Listed], queries: Queries, ids: Hashes, draft: Draft, warnings: Warnings) -> int:
    """Write the known documents of the source's training lists, unless it has none, to lists.parquet; their number.

    Raises:
        UserError: a query whose rows are not together.
    """
    counts: Counter[bool] = Counter()
    parts = tables.batches(_known_rows(_grouped(rows), queries, ids, counts), tables.LISTS_SCHEMA)
    first = next(parts, None)
    if first is not None:
        tables.write(draft.path(LISTS), chain([first], parts), tables.LISTS_SCHEMA)
    dropped = "rows of training lists name documents or queries that are not kept and were dropped"
    warnings.count(counts[False], dropped)
    return counts[True]


def _grouped(rows: Iterable[Listed]) -> Iterator[Listed]:
    done: set[str] = set()
    for query, group in groupby(rows, key=itemgetter(0)):
        if query in done:
            raise UserError(f"lists: query {query} again; the rows of a query must stand together")
        done.add(query)
        yield from group


def _known_rows(rows: Iterable[Listed], queries: Queries, ids: Hashes, counts: Counter[bool]) -> Iterator[Listed]:
    """The rows whose query and document the dataset has; `counts` counts rows by whether it does."""
    for columns in tables.columns(rows):
        for row, in_corpus in zip(zip(*columns, strict=True), ids.has(columns[1]).tolist(), strict=True):
            known = in_corpus and row[0] in queries.splits
            counts[known] += 1
            if known:
                yield row
