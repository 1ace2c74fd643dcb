"""The stage `dataset`: a source streams through checks into Parquet.

Queries and qrels are small and come first, so that most mistakes show before the corpus is read.
"""

from typing import Any

from tandem.data import tables
from tandem.data.collection import CORPUS, QRELS, QUERIES
from tandem.data.corpus import CorpusWriter
from tandem.data.extras import keep_answers, keep_lists
from tandem.data.options import read_options
from tandem.data.qrels import keep_qrels
from tandem.data.queries import read_queries
from tandem.data.sources import source_class
from tandem.data.statistics import split_statistics
from tandem.data.warnings import Warnings
from tandem.errors import UserError
from tandem.store.files import write_json
from tandem.store.job import Job, writing


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
