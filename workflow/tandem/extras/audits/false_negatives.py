"""Stage `false_negatives`: unlabelled passages that may be relevant.

DuReader-retrieval §2.3 and A.1: the union of five systems' top 50 is ranked by the mean of four cross-encoders, and the
top 5 are labelled by people.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.data import tables
from tandem.data.collection import QRELS, QUERIES, Collection
from tandem.data.rows import IdRows, doc_rows, query_rows
from tandem.data.splits import subset
from tandem.errors import UserError
from tandem.extras.audits.pools import FUSION, Array, Counts, Pool, fused, pools, read_run, system_names
from tandem.extras.sheets import CHARACTERS, FORMULA, one_line, safe, write_sheet
from tandem.report.page import FOLDERS, render, shortened
from tandem.retrieval.inputs import require_dataset
from tandem.stages.evaluation import FalseNegativesParams
from tandem.store.files import write_json, write_text
from tandem.store.job import Draft, Job, writing

FOLDERS.append(Path(__file__).parent / "assets")
GROUP = 32  # queries judged together: a line of progress after each
PAGE = 5000  # passages on the page; a browser shows no more in comfort, the CSV has all
COLUMNS = ("query_id", "doc_id", "query", "title", "passage", "score", "rank", "verdict")
POOL_SCHEMA = pa.schema([
    ("query_id", pa.string()), ("doc_id", pa.string()), ("rank", pa.int32()), ("score", pa.float32()),
    ("systems", pa.list_(pa.string())), ("relevance", pa.int32()), ("asked", pa.bool_()),
])  # fmt: skip
Rank = Callable[[Sequence[Pool]], Iterable[tuple[Array, float]]]  # scores of each pool, and of its best positive


def run(job: Job[FalseNegativesParams]) -> None:
    """Pool the systems' results, rank them and write what annotators need.

    Inputs: dataset; `run.<i>`; `judge.<i>` and `judge_tokens.<i>` (cross-encoders, whose mean probability ranks).
    Without judges reciprocal rank fusion of the runs ranks, and there is no verdict.
    Writes pool.parquet, queries.parquet (query_id, split: what was looked at), sheet.csv and sheet.html (to fill
    in, for `relabel`), and summary.json.
    """
    params, judges = job.params, [model.key for model in job.many("judge")]
    if not job.many("run"):
        raise UserError("false_negatives: no run; give at least one as run.0")
    require_dataset(job, *(role for role in sorted(job.inputs) if role.startswith(("run.", "judge_tokens."))))
    collection, names = Collection(job.inputs["dataset"]), system_names(job)
    docs, texts = doc_rows(collection), collection.queries(params.split)
    chosen = subset(dict.fromkeys(texts, params.split), {params.split: params.queries})
    queries = {query: text for query, text in texts.items() if query in chosen}
    results = [read_run(run, collection.artifact, params.split, queries, params.depth) for run in job.many("run")]
    scored_by = f"mean probability of {', '.join(judges)}" if judges else f"reciprocal rank fusion (k = {FUSION})"
    counts = Counts(names, params.top, params.threshold if judges else None)
    sheet: list[pa.Table] = []
    with writing(job) as draft, pq.ParquetWriter(draft.path("pool.parquet"), POOL_SCHEMA) as writer:
        source = pools(results, judgements(collection, params.split), queries, docs)
        rank = judge_ranking(job, query_rows(collection)) if judges else partial(map, _by_ranks)
        with Progress(f"false_negatives {job.key}", len(queries), "queries") as progress:
            while group := list(islice(source, GROUP)):
                for pool, (scores, best) in zip(group, rank(group), strict=True):
                    pool.rank(scores, best, docs)
                    counts.add(pool)
                progress.add(len(group))
                rows = table(group, names, docs, params.top)
                writer.write_table(rows)
                sheet.append(rows.filter(rows["asked"]).select(["query_id", "doc_id", "score", "rank"]))
        summary = counts.summary()
        write_sheets(draft, list(sheet_rows(pa.concat_tables(sheet), queries, collection)), job.key, scored_by)
        looked_at = {"query_id": list(queries), "split": [params.split] * len(queries)}
        pq.write_table(pa.table(looked_at), draft.path(QUERIES))
        head, how = {"split": params.split, "scored_by": scored_by, "judges": judges}, {"depth", "top", "threshold"}
        write_json(draft.path("summary.json"), head | summary | params.model_dump(include=how))
        draft.facts |= {"queries": summary["queries"], "asked": summary["asked"], "scored_by": scored_by}


def judgements(collection: Collection, split: str) -> dict[str, dict[str, int]]:
    """Query id → document id → relevance of a split, in file order; empty where nothing is judged.

    A dataset of questions with answers has no qrels.
    """
    splits = pq.read_table(collection.artifact.path(QRELS), columns=["split"])["split"].unique()
    return collection.qrels(split) if split in splits.to_pylist() else {}


def _by_ranks(pool: Pool) -> tuple[Array, float]:
    """Fused scores of the pooled passages, and of the best positive: 0 if no system has one, NaN if there is none."""
    scores, positives = fused(pool.ranks), pool.positives
    best = float(scores[np.isin(pool.rows, positives)].max(initial=0)) if len(positives) else float("nan")
    return scores, best


def judge_ranking(job: Job[FalseNegativesParams], queries: IdRows) -> Rank:
    """The mean probability of the inputs `judge.<i>` with their `judge_tokens.<i>` (DuReader-retrieval A.1).

    The best positive is scored whether pooled or not; pairs that were scored before come from their stores.
    """
    # The judges bring torch, which takes seconds to import.
    from tandem.models.device import use_workers
    from tandem.retrieval.pair_scores import mean_probability, open_judges

    use_workers(job.execution.workers)
    judges = open_judges(job)

    def rank(group: Sequence[Pool]) -> Iterator[tuple[Array, float]]:
        """Of each pool: the judges' mean probabilities of its passages, and what its best positive has."""
        passages = [np.concatenate([pool.rows, pool.positives]) for pool in group]
        sizes = [len(rows) for rows in passages]
        repeated = np.repeat(queries.rows([pool.query for pool in group]), sizes)
        scores = mean_probability(judges, repeated, np.concatenate(passages))
        for pool, own in zip(group, np.split(scores, np.cumsum(sizes)[:-1]), strict=True):
            positives = own[len(pool.rows) :]
            yield own[: len(pool.rows)], float(positives.max()) if len(positives) else float("nan")

    return rank


def table(group: list[Pool], names: list[str], docs: IdRows, top: int) -> pa.Table:
    """Ranked pools as rows of `POOL_SCHEMA`, query after query."""
    columns: dict[str, list[object]] = {name: [] for name in POOL_SCHEMA.names}
    for pool in group:
        columns["query_id"] += [pool.query] * len(pool.rows)
        columns["doc_id"] += docs.ids(pool.rows)
        columns["rank"] += range(1, len(pool.rows) + 1)
        columns["score"] += pool.scores.tolist()
        columns["systems"] += [[names[at] for at in np.flatnonzero(column)] for column in pool.ranks.T]
        columns["relevance"] += [pool.relevance.get(int(row)) for row in pool.rows]
        columns["asked"] += pool.open(top).tolist()
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in POOL_SCHEMA})


class SheetRow(NamedTuple):
    """A passage that annotators are asked about."""

    query_id: str
    doc_id: str
    query: str
    title: str
    passage: str
    score: str
    rank: int


def sheet_rows(rows: pa.Table, queries: dict[str, str], collection: Collection) -> Iterator[SheetRow]:
    """Rows of a pool with their texts, in the order of the queries and best first."""
    texts = collection.texts(rows["doc_id"].to_pylist())
    for query, doc, score, rank in tables.rows(rows):
        title, passage = map(one_line, texts[doc])
        yield SheetRow(
            query, doc, one_line(queries[query]), title, shortened(passage, CHARACTERS), f"{score:.6g}", rank
        )


def write_sheets(draft: Draft, rows: list[SheetRow], key: str, scored_by: str) -> None:
    """Write sheet.csv, and sheet.html, a page with buttons that stores the answers under `key` and saves the CSV."""
    write_sheet(draft.path("sheet.csv"), COLUMNS, ([*row[:2], *map(safe, row[2:5]), *row[5:], ""] for row in rows))
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.query_id)]
    ends = [end for end in accumulate(map(len, groups), initial=0) if end <= PAGE]
    how = {"key": key, "scored_by": scored_by, "columns": COLUMNS, "formula": FORMULA}
    page = render("sheet.html", groups=groups[: len(ends) - 1], total=len(rows), shown=ends[-1], **how)
    write_text(draft.path("sheet.html"), page)
