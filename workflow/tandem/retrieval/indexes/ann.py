"""Stage `ann`: the passages that an index finds for each query, as a TREC run, and their recall against exact search.

An index proposes `rescore_factor` times the depth, and the exact scores of the stored vectors decide; with
`rescore: false` the index's own do. No torch here, as in `retrieve`.
"""

import csv
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tandem.artifact import Job, writing
from tandem.data.order import Order
from tandem.data.runs import Floats, write_run
from tandem.errors import UserError
from tandem.progress import Progress
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array, Best
from tandem.retrieval.faiss_search import Ranks, exact_ranks, recall
from tandem.retrieval.indexes.opened import Index, exact_keys, own_keys, ranked
from tandem.retrieval.indexes.threads import MOST, NONE, Threads, alone, lease_gpus
from tandem.retrieval.retrieve import open_embeddings

GROUP = 1024  # queries searched and rescored together


class Searcher:
    """Search by an index.

    Args:
        index: opened.
        passages: the vectors it was made from.
        ranks: alphabetical rank of each row's id.
        params: `rescore` and `rescore_factor`.
    """

    def __init__(self, index: Index, passages: Embeddings, ranks: Array, params: dict[str, Any]) -> None:
        self.index, self.passages, self.ranks, self.params = index, passages, ranks, params
        self.temperature: float = passages.meta["temperature"]

    def best(self, queries: Array, depth: int) -> Best:
        """The best passages of queries, shape (queries, dim)."""
        depth = min(depth, self.index.rows)
        k = min(depth * (self.params["rescore_factor"] if self.params["rescore"] else 1), self.index.rows)
        if self.index.gpu != NONE and k > MOST:
            raise UserError(f"ann: {k} passages a query are asked of a GPU, it gives {MOST}; lower rescore_factor")
        scores, rows = self.index.search(np.ascontiguousarray(queries, np.float32), k)
        if self.params["rescore"]:
            told = (self.ranks, self.temperature, self.index.threads)
            return ranked(exact_keys(self.passages, queries, rows, *told), depth)
        return ranked(own_keys(scores, rows, self.ranks, self.temperature), depth)


def search(job: Job, searcher: Searcher, queries: Embeddings, order: Order) -> Iterator[tuple[str, list[str], Floats]]:
    """(query, documents, scores) of each query, a bounded group of queries at a time."""
    ids: list[str] = pq.read_table(queries.artifact.path("ids.parquet"))["query_id"].to_pylist()
    with Progress(f"ann {job.key}", queries.rows, "queries") as progress:
        for first in range(0, queries.rows, GROUP):
            asked = queries.take(first, first + GROUP)
            best = searcher.best(asked, job.params["depth"])
            for query in range(len(asked)):
                found, scores = best.ranked(query)
                yield ids[first + query], order.ids(found), scores
            progress.add(len(asked))


def sample_queries(queries: Embeddings, count: int) -> Array:
    """The vectors of so many queries, or of all, evenly spread; shape (queries, dim)."""
    count = min(count, queries.rows)
    return np.concatenate([queries.take(row, row + 1) for row in (np.arange(count) * queries.rows // count).tolist()])


def measure_recall(searcher: Searcher, queries: Array, depth: int) -> dict[str, float]:
    """Recall at 10, 100 and the depth as far as it goes, by k."""
    best = searcher.best(queries, depth)
    found: list[Ranks] = [best.ranked(query)[0] for query in range(len(queries))]
    true = exact_ranks(searcher.passages, queries, searcher.ranks, depth)
    return {str(k): round(recall(found, true, k), 4) for k in sorted({min(10, depth), min(100, depth), depth})}


def open_vectors(job: Job) -> tuple[Embeddings, Embeddings]:
    """Passages and queries; a `UserError` unless they and every index fit together."""
    passages, queries = open_embeddings(job)
    for index in job.many("index") or [job.inputs["index"]]:
        made = Path(index.upstream["passages"]).name
        if made != passages.artifact.key:
            raise UserError(f"{index.folder}: was made from {made}; expected {passages.artifact.key}")
    return passages, queries


def run(job: Job) -> None:
    """Search and write `run.trec`."""
    passages, queries = open_vectors(job)
    gpu = lease_gpus(job)
    order = Order(job.inputs["dataset"])
    with alone(job.execution.workers) as threads, writing(job) as draft:
        index = Index(job.inputs["index"], threads, gpu)
        index.tune(job.params.get("nprobe"), job.params.get("ef_search"))
        searcher = Searcher(index, passages, order.ranks, job.params)
        lines = write_run(draft.path("run.trec"), search(job, searcher, queries, order), job.key)
        draft.facts |= {"queries": queries.rows, "lines": lines, "gpu": index.gpu}
        if job.params["recall_queries"]:
            asked = sample_queries(queries, job.params["recall_queries"])
            draft.facts["recall"] = measure_recall(searcher, asked, job.params["depth"])
            draft.facts["recall_queries"] = len(asked)


ALONE = 100  # queries that are asked one at a time

Line = dict[str, Any]


def settings(index: Index, sweep: dict[str, Any]) -> list[Line]:
    """What is swept for an index: lists or candidates where it has any, each with and without exact scores."""
    within = [number for number in sweep["nprobe"] if number <= index.lists] or [index.lists]
    nprobe = within if index.lists else [None]
    ef_search = sweep["ef_search"] if index.is_graph else [None]
    names = ("nprobe", "ef_search", "rescore")
    return [dict(zip(names, told, strict=True)) for told in product(nprobe, ef_search, sweep["rescore"])]


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """Median wall time of some calls after one that warms up."""
    work()
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def measure(searcher: Searcher, queries: Array, true: list[Ranks], ks: list[int], repeats: int) -> Line:
    """Recall at each k, milliseconds of a query alone, and queries a second together.

    Args:
        searcher: an index, tuned.
        queries: shape (queries, dim).
        true: the exact top of each.
        ks: recall is told at these; the largest is the depth.
        repeats: medians are of so many.
    """
    depth = max(ks)
    best = searcher.best(queries, depth)
    found = [best.ranked(query)[0] for query in range(len(queries))]
    asked = [queries[i : i + 1] for i in range(min(ALONE, len(queries)))]
    single = [median_seconds(partial(searcher.best, one, depth), repeats) for one in asked]
    batch = median_seconds(partial(searcher.best, queries, depth), repeats)
    return {
        **{f"recall@{k}": round(recall(found, true, k), 4) for k in ks},
        "ms_per_query": round(1000 * statistics.median(single), 4),
        "queries_per_second": round(len(queries) / batch, 1),
    }


def lines(job: Job, threads: Threads) -> Iterator[Line]:
    """A line for each index and setting."""
    passages, asked = open_vectors(job)
    gpu = lease_gpus(job)
    ranks = Order(job.inputs["dataset"]).ranks
    queries, ks, sweep = sample_queries(asked, job.params["queries"]), job.params["k"], job.params["sweep"]
    true = exact_ranks(passages, queries, ranks, max(ks))
    told = list(zip(job.params["indexes"], job.many("index"), strict=True))
    with Progress(f"tradeoffs {job.key}", len(told), "indexes") as progress:
        for name, artifact in told:
            index = Index(artifact, threads, gpu)
            for setting in settings(index, sweep):
                index.tune(setting["nprobe"], setting["ef_search"])
                params = {"rescore": setting["rescore"], "rescore_factor": sweep["rescore_factor"]}
                searcher = Searcher(index, passages, ranks, params)
                facts = {"factory": index.meta["factory"], "bytes_per_vector": artifact.manifest["bytes_per_vector"]}
                measured = measure(searcher, queries, true, ks, job.params["repeats"])
                yield {"index": name, **setting, **measured, **facts, "key": artifact.key}
            progress.add(1)


def run_tradeoffs(job: Job) -> None:
    """Measure and write `tradeoffs.csv`."""
    with alone(job.execution.workers) as threads, writing(job) as draft:
        measured = list(lines(job, threads))
        with open(draft.path("tradeoffs.csv"), "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(measured[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(measured)
        draft.facts |= {"lines": len(measured), "threads": threads.workers}
