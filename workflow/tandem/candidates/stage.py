"""Stage `candidates`: draw each training query's list from a run, denoised by a judge if asked."""

import hashlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tandem.artifact import Job, write_json, writing
from tandem.candidates.labels import Labels
from tandem.candidates.lists import TrainingList, denoised, judge_labelled, undenoised
from tandem.candidates.pool import Pool, make_pool
from tandem.candidates.ranked import ranked
from tandem.candidates.report import Report
from tandem.candidates.table import SCHEMA, table
from tandem.data.collection import Collection
from tandem.data.rows import IdRows, doc_rows, query_rows
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.models.ragged import Ids
from tandem.models.tokens import Tokens
from tandem.progress import Progress
from tandem.search.pairs import PairScores, mean_probability, open_judges
from tandem.search.shards import Asked, score_shard

GROUP = 1024  # queries judged together


def pools(job: Job, docs: IdRows, queries: IdRows, report: Report) -> Iterator[Pool]:
    """The pool of every query that has a known positive in the corpus, or whose positive the judge decides."""
    params, labels = job.params, Labels(job, docs)
    passages = Tokens.open(job.inputs["tokens"]).passages
    backfill = (params.get("denoise") or {}).get("backfill")
    beyond = (backfill["first_rank"], backfill["depth"]) if backfill else None
    window = (params["first_rank"], params["depth"])
    known = set(labels.queries)
    report.without_run = len(known)
    wanted = subset(labels.queries, params.get("queries"), params["seed"])
    for query, ids, rows, scores in ranked(job, labels, docs, queries):
        report.without_run -= query in known
        if query in known and query not in wanted:
            continue
        positives = labels.positives(query, ids)
        if not len(positives) and labels.told != "judge":
            report.without_positive += 1
            continue
        barred, row = labels.barred(query), int(queries.rows([query])[0])
        pool = make_pool(row, positives, (rows, scores), window, beyond, lambda i: passages[i].tobytes(), barred)
        pool.labelled, pool.source = labels.name, "run" if "run" in job.inputs else "random"
        yield pool


def subset(queries: list[str], most: int | None, seed: int) -> set[str]:
    """At most so many queries, those whose hash with the seed is smallest: the same whatever their order."""
    if most is None or most >= len(queries):
        return set(queries)
    return set(sorted(queries, key=lambda query: hashlib.sha256(f"{seed} {query}".encode()).digest())[:most])


def pairs(group: list[Pool]) -> tuple[Ids, Ids]:
    """Query row and passage row of what is judged: each pool's window, then its positives."""
    queries = np.repeat([pool.query for pool in group], [len(pool.rows) + len(pool.positives) for pool in group])
    return queries, np.concatenate([part for pool in group for part in (pool.rows, pool.positives)])


def judge(group: list[Pool], judges: list[PairScores]) -> None:
    """Give each pool the judges' mean probability of its window's passages and of its positives."""
    ends = np.cumsum([len(pool.rows) + len(pool.positives) for pool in group])
    probabilities = mean_probability(judges, *pairs(group))
    for pool, mine in zip(group, np.split(probabilities, ends[:-1]), strict=True):
        pool.judged, pool.judged_positives = mine[: len(pool.rows)], mine[len(pool.rows) :]


def drawn(pool: Pool, params: dict[str, Any]) -> Iterator[TrainingList]:
    """The lists of one query, none where the judge finds no positive; the draw depends on (seed, query) alone."""
    denoise, wanted, first = params.get("denoise"), params["negatives"], params.get("take") == "first"
    if wanted is not None and params.get("negatives_per") == "positive":
        wanted *= max(1, len(pool.positives))
    rng = np.random.default_rng([params["seed"], 1, pool.query])
    if params.get("labels") == "judge" and denoise is not None:
        made = judge_labelled(pool, wanted, denoise, rng, first)
        if made is not None:
            yield made
        return
    if denoise is None or denoise["hybrid"]:
        yield undenoised(pool, wanted, np.random.default_rng([params["seed"], 0, pool.query]), first)
    if denoise is not None:
        yield denoised(pool, wanted, denoise, rng, first)


def asked(job: Job) -> Iterator[Asked]:
    """The pairs that the judges score."""
    judges, collection = open_judges(job), Collection(job.inputs["dataset"])
    source = pools(job, doc_rows(collection), query_rows(collection), Report(job.params["negatives"]))
    while group := list(islice(source, GROUP)):
        for one in judges:
            yield one, *pairs(group)


def main_shard(words: list[str]) -> int:
    """Command `candidates-shard`: score a share of the pairs that are judged; see `score_shard`."""
    return score_shard("candidates", words, asked)


def run(job: Job) -> None:
    """Write candidates.parquet and report.json."""
    use_workers(job.execution.workers)
    judges = open_judges(job)
    report = Report(job.params["negatives"])
    collection = Collection(job.inputs["dataset"])
    docs, queries = doc_rows(collection), query_rows(collection)
    source = pools(job, docs, queries, report)
    with writing(job) as draft, Progress(f"candidates {job.key}", 0, "queries") as progress:
        with pq.ParquetWriter(draft.path("candidates.parquet"), SCHEMA) as writer:
            while group := list(islice(source, GROUP)):
                if judges:
                    judge(group, judges)
                made = [list(drawn(pool, job.params)) for pool in group]
                report.without_positive += sum(not lists for lists in made)
                for pool in group:
                    report.pool(pool)
                kept = [one for lists in made for one in lists if report.list(one)]
                if kept:
                    writer.write_table(table(kept, docs, queries))
                progress.add(len(group))
        told = report.finish()
        if not told["lists"]:
            raise UserError(
                f"candidates {job.key}: no query has a positive and a negative ({told['queries']} queries have a "
                f"positive, {told['without_run']} no run); widen candidates.depth or relax candidates.denoise"
            )
        write_json(draft.path("report.json"), told)
        draft.facts |= {"queries": told["queries"], "lists": told["lists"]}
