"""Stage `ann`: the passages that an index finds for each query, as a TREC run, and their recall against exact search.

An index proposes `rescore_factor` times the depth, and the exact scores of the stored vectors decide; with
`rescore: false` the index's own do. No torch here, as in `retrieve`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.data.order import Order
from tandem.data.runs import Floats, write_run
from tandem.errors import UserError
from tandem.search.blocks import Embeddings
from tandem.search.exact import Array, Best
from tandem.search.indexes.gpus import MOST, NONE, wanted
from tandem.search.indexes.opened import Index
from tandem.search.indexes.recall import Ranks, exact, recall
from tandem.search.indexes.rescore import exact_keys, own_keys, ranked
from tandem.search.indexes.threads import alone
from tandem.search.retrieve import check
from tandem.store.job import Job, writing

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


def spread(queries: Embeddings, count: int) -> Array:
    """The vectors of so many queries, or of all, evenly spread; shape (queries, dim)."""
    count = min(count, queries.rows)
    return np.concatenate([queries.take(row, row + 1) for row in (np.arange(count) * queries.rows // count).tolist()])


def measured(searcher: Searcher, queries: Array, depth: int) -> dict[str, float]:
    """Recall at 10, 100 and the depth as far as it goes, by k."""
    best = searcher.best(queries, depth)
    found: list[Ranks] = [best.ranked(query)[0] for query in range(len(queries))]
    true = exact(searcher.passages, queries, searcher.ranks, depth)
    return {str(k): round(recall(found, true, k), 4) for k in sorted({min(10, depth), min(100, depth), depth})}


def opened(job: Job) -> tuple[Embeddings, Embeddings]:
    """Passages and queries; a `UserError` unless they and every index fit together."""
    passages, queries = check(job)
    for index in job.many("index") or [job.inputs["index"]]:
        made = Path(index.upstream["passages"]).name
        if made != passages.artifact.key:
            raise UserError(f"{index.folder}: was made from {made}; expected {passages.artifact.key}")
    return passages, queries


def run(job: Job) -> None:
    """Search and write `run.trec`."""
    passages, queries = opened(job)
    gpu = wanted(job)
    order = Order(job.inputs["dataset"])
    with alone(job.execution.workers) as threads, writing(job) as draft:
        index = Index(job.inputs["index"], threads, gpu)
        index.tune(job.params.get("nprobe"), job.params.get("ef_search"))
        searcher = Searcher(index, passages, order.ranks, job.params)
        lines = write_run(draft.path("run.trec"), search(job, searcher, queries, order), job.key)
        draft.facts |= {"queries": queries.rows, "lines": lines, "gpu": index.gpu}
        if job.params["recall_queries"]:
            asked = spread(queries, job.params["recall_queries"])
            draft.facts["recall"] = measured(searcher, asked, job.params["depth"])
            draft.facts["recall_queries"] = len(asked)
