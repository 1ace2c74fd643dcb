"""Stage `candidates`: draw each training query's list from a run, denoised by a judge if there is one.

Queries are judged, and their lists drawn, in parts: shards share the parts, and a killed stage resumes after the
finished ones.
"""

from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress, warn
from tandem.cluster.work import Parts
from tandem.data.collection import Collection
from tandem.data.columns import open_column_writer
from tandem.data.rows import index_passages, index_queries
from tandem.errors import UserError
from tandem.models.ragged import Ragged
from tandem.negatives.drawing import (
    DrawnList,
    QueryPool,
    draw_denoised,
    draw_undenoised,
    find_near_copies,
    judge_labelled,
    keep_below,
)
from tandem.negatives.list_report import NEAR_COPY, NegativesReport
from tandem.negatives.sources import Pools, SourceRanking
from tandem.stages.base import Json
from tandem.stages.negatives import CandidatesParams
from tandem.store.files import write_json
from tandem.store.job import Job, load, writing

if TYPE_CHECKING:
    from tandem.negatives.judging import Judge

QUERIES_PER_ROW_GROUP = 1024  # queries whose lists are one row group of the file
_LISTS_FILE = "lists.parquet"  # name of the file with a part's lists

# candidates.parquet has a line for each passage of a list; `add_ids` adds the ids of queries and passages.
CANDIDATES_SCHEMA = pa.schema(
    {"query_row": pa.uint32(), "passage_row": pa.uint32(), "label": pa.int8(), "rank": pa.int32()}
    | {"score": pa.float32(), "judge": pa.float32(), "source": pa.string(), "list": pa.string()}
)
_NUMBERS = ("passage_row", "rank", "score", "judge")


def tabulate_lists(lists: list[DrawnList]) -> pa.Table:
    """Return lists as a table of `CANDIDATES_SCHEMA`, list after list, positives first."""
    lines = [(entry.rows, entry.labels, entry.ranks, entry.scores, entry.judged) for entry in lists]
    columns = [
        np.repeat([entry.query for entry in lists], [len(entry.rows) for entry in lists]),
        *(np.concatenate(parts) for parts in zip(*lines, strict=True)),
        [source for entry in lists for source in entry.sources],
        [entry.kind for entry in lists for _ in entry.sources],
    ]
    return pa.table(
        [pa.array(*column) for column in zip(columns, CANDIDATES_SCHEMA.types, strict=True)],
        schema=CANDIDATES_SCHEMA,
    )


def count_list_negatives(pool: QueryPool, params: CandidatesParams) -> int | None:
    """Return how many negatives a list of this query should have; None: all that there are."""
    factor = max(1, len(pool.positives)) if params.negatives_per == "positive" else 1
    return None if params.negatives is None else params.negatives * factor


def draw_lists(pool: QueryPool, params: CandidatesParams) -> Iterator[DrawnList]:
    """Yield the lists of one query; none if a judge labels and finds no positive.

    The draw depends only on (seed, query).
    """
    denoise = params.denoise
    negatives = count_list_negatives(pool, params)
    first = params.take == "first"
    rng = np.random.default_rng([params.seed, 1, pool.query])
    if params.labels == "judge" and denoise is not None:
        labelled = judge_labelled(pool, negatives, denoise, rng, first)
        if labelled is not None:
            yield labelled
        return
    if denoise is None or denoise.hybrid:
        yield draw_undenoised(
            pool, negatives, np.random.default_rng([params.seed, 0, pool.query]), first
        )
    if denoise is not None:
        yield draw_denoised(pool, negatives, denoise, rng, first)


def write_part(
    folder: Path,
    pools: list[QueryPool],
    judge: "Judge | None",
    params: CandidatesParams,
    report: NegativesReport,
    texts: Ragged,
) -> Json:
    """Judge some pools, draw their lists, and write the lists and the scores of `report`.

    Args:
        texts: token ids of all passages.
    Returns:
        The counts of `report`, the number of lines of each pool's lists, and facts about the judge.
    """
    if judge is not None and pools:
        judge(pools)
        for pool in pools:
            report.add_denoised(pool, find_near_copies(pool.rows, pool.positives, texts, NEAR_COPY))
    below = params.below_positive
    if below:
        for pool in pools:
            keep_below(pool, below, below.judged)
    drawn = [list(draw_lists(pool, params)) for pool in pools]
    report.without_positive += sum(not lists for lists in drawn)
    useful = []
    for pool, lists in zip(pools, drawn, strict=True):
        report.add_pool(pool)
        useful.append(
            [entry for entry in lists if report.add_list(entry, count_list_negatives(pool, params))]
        )
    folder.mkdir()
    entries = [entry for lists in useful for entry in lists]
    pq.write_table(
        tabulate_lists(entries) if entries else CANDIDATES_SCHEMA.empty_table(),
        folder / _LISTS_FILE,
    )
    for name, scores in report.join_scores().items():
        np.save(folder / f"{name}.npy", scores)
    lines = [sum(len(entry.rows) for entry in lists) for lists in useful]
    return {"report": report.list_counts(), "lines": lines, "judge": judge.facts if judge else {}}


def write_parts(job: Job[CandidatesParams], parts: Parts) -> tuple[dict[int, Json], int]:
    """Write the parts of this job that are missing; the queries of a part are judged together.

    Returns:
        The facts of its parts by number, and how many of the split's queries the source lacks.
    """

    @cache
    def judge() -> "Judge | None":
        if not job.many("judge"):
            return None
        from tandem.negatives.judging import Judge  # imports torch, which takes a second

        return Judge(job, pools.docs, pools.queries)

    def write(entries: list[SourceRanking], folder: Path) -> Json:
        report = NegativesReport(job.params.denoise)
        query_pools = list(pools.make_pools(entries, report))
        return write_part(folder, query_pools, judge(), job.params, report, pools.passages)

    collection = Collection(job.inputs["dataset"])
    pools = Pools(job, index_passages(collection), index_queries(collection))
    facts = dict[int, Json]()
    source = pools.read_source()
    without_run = len(pools.known)
    total = sum(
        len(span) for number, span in enumerate(parts.spans(without_run)) if parts.is_own(number)
    )
    numbers = count()
    with Progress(f"candidates {job.key}", total, "queries") as progress:
        while entries := list(islice(source, parts.rows)):
            number = next(numbers)
            without_run -= sum(query in pools.known for query, *_ in entries)
            if parts.is_own(number):
                facts[number] = parts.facts(number) or parts.write(number, partial(write, entries))
                progress.add(len(entries))
    return facts, without_run


def run_shard(job: Job[CandidatesParams]) -> Json:
    """Judge and draw the lists of every n-th part, beginning with this shard's number."""
    return {"parts": list(write_parts(job, Parts(job))[0])}


def run(job: Job[CandidatesParams]) -> None:
    """Draw the lists that no shard has drawn; write candidates.parquet and report.json."""
    parts = Parts(job)
    report = NegativesReport(job.params.denoise)
    facts, report.without_run = write_parts(job, parts)
    for number, part in facts.items():
        folder = parts.path(number)
        scores = {
            name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in report.scores
        }
        report.add(part["report"], scores)
    if not report.lists:
        parts.remove()
        explained = load("extras.drawn_lists:explain_nothing_drawn")(job.params, report)
        raise UserError(f"candidates {job.key}: {explained}")
    with writing(job) as draft:
        with open_column_writer(
            draft.path("candidates.parquet"), CANDIDATES_SCHEMA, _NUMBERS
        ) as writer:
            lines = list[int]()
            for part in facts.values():
                lines += part["lines"]
            starts = range(0, len(lines), QUERIES_PER_ROW_GROUP)
            sizes = np.add.reduceat(lines, starts)  # lines of each row group
            tables = (pq.read_table(parts.path(number) / _LISTS_FILE) for number in facts)
            for group in group_rows(tables, sizes):
                writer.write_table(group)
        result = load("extras.drawn_lists:describe_lists")(report)
        write_json(draft.path("report.json"), result)
        draft.facts |= {"queries": result["queries"], "lists": result["lists"]} | facts[0]["judge"]
        for line in load("extras.drawn_lists:warn_of_judges")(job.many("judge"), report):
            warn(job, draft, line)
    parts.remove()


def group_rows(tables: Iterable[pa.Table], sizes: Iterable[int]) -> Iterator[pa.Table]:
    """Regroup the rows of tables into tables of the given sizes; those of size 0 are left out."""
    rest = CANDIDATES_SCHEMA.empty_table()
    source = iter(tables)
    for size in sizes:
        while len(rest) < size:
            rest = pa.concat_tables([rest, next(source)])
        if size:
            yield rest.slice(0, size).combine_chunks()
        rest = rest.slice(size)
