"""Stage `false_negatives`: which unlabelled passages may well be relevant, for annotators to look at."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.artifact import Job, write_json, writing
from tandem.audits.false_negatives.judgements import known
from tandem.audits.false_negatives.pool import FUSION, Array, Pool, fused, pools, read_run, system_names
from tandem.audits.false_negatives.sheet import Sheet
from tandem.audits.false_negatives.summary import Summary
from tandem.data.collection import QUERIES, Collection
from tandem.data.rows import IdRows, doc_rows, query_rows
from tandem.data.select import subset
from tandem.errors import UserError
from tandem.progress import Progress
from tandem.retrieval.inputs import require_dataset

GROUP = 32  # queries judged together: a line of progress after each
POOL_SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("doc_id", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float32()),
        ("systems", pa.list_(pa.string())),
        ("relevance", pa.int32()),
        ("asked", pa.bool_()),
    ]
)


def run(job: Job) -> None:
    """Pool the systems' results, rank them and write what annotators need.

    Params: split, depth (results per system and query that are pooled), top (unlabelled passages per query to ask
    about), threshold (a judge's verdict is positive above it), queries (so many of the split, by their ids' hash; null
    or absent: all), and where there are judges precision and batch_tokens.
    Inputs: dataset; `run.<i>`; `judge.<i>` and `judge_tokens.<i>` (cross-encoders, whose mean probability ranks).
    Without judges reciprocal rank fusion of the runs ranks, and there is no verdict.
    Writes pool.parquet, queries.parquet (query_id, split: what was looked at), sheet.csv and sheet.html (to fill
    in, for `relabel`), and summary.json.
    """
    params = _checked(job)
    collection, names = Collection(job.inputs["dataset"]), system_names(job)
    queries, docs = _chosen(collection.queries(params["split"]), params), doc_rows(collection)
    found = [read_run(one, params["split"], queries, params["depth"], docs) for one in job.many("run")]
    judges = [model.key for model in job.many("judge")]
    scored_by = f"mean probability of {', '.join(judges)}" if judges else f"reciprocal rank fusion (k = {FUSION})"
    summary = Summary(names, params["top"], params["threshold"] if judges else None)
    sheet = Sheet(queries, f"{job.key}", scored_by)
    with writing(job) as draft, pq.ParquetWriter(draft.path("pool.parquet"), POOL_SCHEMA) as writer:
        source = pools(found, known(collection, params["split"]), queries, docs)
        for group in ranked(job, source, docs, collection, len(queries)):
            for pool in group:
                summary.add(pool)
            rows = table(group, names, docs, params["top"])
            writer.write_table(rows)
            sheet.add(rows.filter(rows["asked"]))
        told = {"split": params["split"], "scored_by": scored_by, "judges": judges, **summary.finish()}
        told |= {name: params[name] for name in ("depth", "top", "threshold")}
        sheet.write(draft, collection)
        looked_at = {"query_id": list(queries), "split": [params["split"]] * len(queries)}
        pq.write_table(pa.table(looked_at), draft.path(QUERIES))
        write_json(draft.path("summary.json"), told)
        draft.facts |= {"queries": told["queries"], "asked": told["asked"], "scored_by": scored_by}


def _chosen(queries: dict[str, str], params: dict[str, Any]) -> dict[str, str]:
    """The queries to look at, in their order."""
    split, most = params["split"], params.get("queries")
    kept = subset(dict.fromkeys(queries, split), {split: most})
    return {query: text for query, text in queries.items() if query in kept}


def _checked(job: Job) -> dict[str, Any]:
    """The parameters, refused if they or the inputs mean nothing."""
    for name in ("depth", "top", "queries"):
        told = job.params.get(name) if name == "queries" else job.params[name]
        if not (told is None and name == "queries") and (type(told) is not int or told < 1):
            raise UserError(f"false_negatives: {name} is {told!r}; a whole number from 1 is allowed")
    threshold = job.params["threshold"]
    if type(threshold) not in (int, float) or not 0 <= threshold <= 1:
        raise UserError(f"false_negatives: threshold is {threshold!r}; a number from 0 to 1 is allowed")
    if not job.many("run"):
        raise UserError("false_negatives: no run; give at least one as run.0")
    require_dataset(job, *(role for role in sorted(job.inputs) if role.startswith(("run.", "judge_tokens."))))
    params: dict[str, Any] = job.params
    return params


def ranked(job: Job, source: Iterator[Pool], docs: IdRows, collection: Collection, total: int) -> Iterator[list[Pool]]:
    """The pools, ranked, a group of queries at a time."""
    judge = _judge(job, query_rows(collection)) if job.many("judge") else None
    with Progress(f"false_negatives {job.key}", total, "queries") as progress:
        while group := list(islice(source, GROUP)):
            for pool, (scores, best) in zip(group, judge(group) if judge else map(by_ranks, group), strict=True):
                pool.rank(scores, best, docs)
            progress.add(len(group))
            yield group


def by_ranks(pool: Pool) -> tuple[Array, float]:
    """Fused scores of the pooled passages, and of the best positive: 0 if none was found, NaN if there is none."""
    scores, positives = fused(pool.ranks), pool.positives
    best = float(scores[np.isin(pool.rows, positives)].max(initial=0)) if len(positives) else float("nan")
    return scores, best


def _judge(job: Job, queries: IdRows) -> Any:
    """The judges of the job; they bring torch, which takes seconds to import and is not wanted without them."""
    from tandem.audits.false_negatives.judge import Judge

    return Judge(job, queries)


def table(group: list[Pool], names: list[str], docs: IdRows, top: int) -> pa.Table:
    """Ranked pools as rows of `POOL_SCHEMA`, query after query."""
    columns: dict[str, list[Any]] = {name: [] for name in POOL_SCHEMA.names}
    for pool in group:
        columns["query_id"] += [pool.query] * len(pool.rows)
        columns["doc_id"] += docs.ids(pool.rows)
        columns["rank"] += range(1, len(pool.rows) + 1)
        columns["score"] += pool.scores.tolist()
        columns["systems"] += [[names[at] for at in np.flatnonzero(column)] for column in pool.ranks.T]
        columns["relevance"] += [pool.relevance.get(int(row)) for row in pool.rows]
        columns["asked"] += pool.asked(top).tolist()
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in POOL_SCHEMA})
