"""Stages `ann`, a run through an index with its recall, and `tradeoffs`, several indexes compared. No torch here.

Latency is of one query at a time by one thread, throughput of all queries by all threads: times differ every time.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.config.indexes import TradeoffSweep
from tandem.data.columns import RankedRows
from tandem.data.rows import Order
from tandem.data.runs import write_rows
from tandem.errors import UserError
from tandem.retrieval import maxsim
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array, measured, recall
from tandem.retrieval.faiss_search import exact_best
from tandem.retrieval.indexes.search import Index, Searcher
from tandem.retrieval.indexes.threads import NONE, Threads, alone, lease_gpus
from tandem.retrieval.retrieve import embedded_rows, lists, open_embeddings
from tandem.stages.retrieval import AnnParams, TradeoffsParams
from tandem.store.files import csv_text, write_text
from tandem.store.job import Job, writing

GROUP = 1024  # queries searched and rescored together
ALONE = 100  # queries that are searched for one at a time

Line = dict[str, str | float | None]


def open_vectors(job: Job[AnnParams] | Job[TradeoffsParams]) -> tuple[Embeddings, Embeddings]:
    """Passages and queries; a `UserError` unless they and every index fit together."""
    passages, queries = open_embeddings(job, job.params.split)
    for index in job.many("index") or [job.inputs["index"]]:
        source = Path(index.upstream["passages"]).name
        if source != passages.artifact.key:
            raise UserError(f"{index.folder}: was made from {source}; expected {passages.artifact.key}")
    return passages, queries


def search(job: Job[AnnParams], searcher: Searcher, queries: Embeddings, order: Order) -> Iterator[RankedRows]:
    """(the query's row, its passages' rows, their scores) of each query, a bounded group of queries at a time."""
    rows = embedded_rows(job, queries)
    with Progress(f"ann {job.key}", queries.rows, "queries") as progress:
        for first in range(0, queries.rows, GROUP):
            group = queries.take(first, first + GROUP)
            yield from lists(searcher.best(group, job.params.depth), rows[first : first + GROUP], order)
            progress.add(len(group))


def sample_queries(queries: Embeddings, count: int) -> Array:
    """The vectors of `count` queries at most, evenly spaced; shape (queries, dim)."""
    count = min(count, queries.rows)
    return queries.at(np.arange(count) * queries.rows // count)


def measure_recall(searcher: Searcher, queries: Array, depth: int) -> dict[str, float]:
    """Recall at 10, 100 and the depth as far as it goes, by k."""
    ranks = searcher.best(queries, depth).ranks()
    exact = exact_best(searcher.passages, queries, searcher.ranks, depth, searcher.index.threads).ranks()
    return {str(k): round(recall(ranks, exact, k), 4) for k in sorted({min(10, depth), min(100, depth), depth})}


def run(job: Job[AnnParams]) -> None:
    """Search and write the run."""
    params = job.params
    passages, queries = open_vectors(job)
    gpu = lease_gpus(job)
    order = Order(job.inputs["dataset"])
    with alone(job.execution.workers) as threads, writing(job) as draft:
        index = Index(job.inputs["index"], threads, gpu)
        index.tune(params.nprobe, params.ef_search)
        searcher = Searcher(index, passages, order.ranks, params.rescore, params.rescore_factor)
        lines = write_rows(job, draft, search(job, searcher, queries, order), order)
        draft.facts |= {"queries": queries.rows, "lines": lines, "gpu": index.gpu}
        if params.recall_queries:
            sample = sample_queries(queries, params.recall_queries)
            draft.facts["recall"] = measure_recall(searcher, sample, params.depth)
            draft.facts["recall_queries"] = len(sample)


def settings(index: Index, sweep: TradeoffSweep) -> Iterator[tuple[int | None, int | None, bool]]:
    """(nprobe, ef_search, rescore) of an index: lists or candidates where it has any, without and with exact scores."""
    within = [number for number in sweep.nprobe if number <= index.lists] or [index.lists]
    nprobe: list[int] | list[None] = within if index.lists else [None]
    ef_search: tuple[int, ...] | list[None] = sweep.ef_search if index.is_graph else [None]
    return product(nprobe, ef_search, sweep.rescore)


def measure(searcher: Any, queries: Array, exact: list[Array], ks: tuple[int, ...], repeats: int) -> dict[str, float]:
    """What `measured` says of a search for some queries down to the largest k.

    Args:
        searcher: has `best(queries, depth)`, of vectors or of late interaction's texts by their numbers.
    """
    search = partial(searcher.best, depth=max(ks))
    alone = (partial(search, queries[at : at + 1]) for at in range(min(ALONE, len(queries))))
    return measured(search(queries).ranks(), exact, ks, alone, partial(search, queries), repeats)


class VectorSearches:
    """What `run_tradeoffs` measures: searches of single vectors for a sample of queries."""

    def __init__(self, job: Job[TradeoffsParams]) -> None:
        self.passages, queries = open_vectors(job)
        self.ranks, self.factor = Order(job.inputs["dataset"]).ranks, job.params.sweep.rescore_factor
        self.queries = sample_queries(queries, job.params.queries)

    def exact(self, depth: int, threads: Threads) -> list[Array]:
        """Ranks of each query's passages by exact search, best first."""
        return exact_best(self.passages, self.queries, self.ranks, depth, threads).ranks()

    def searcher(self, index: Index, rescore: bool) -> Searcher:
        """A search through an index."""
        return Searcher(index, self.passages, self.ranks, rescore, self.factor)


class TokenSearches:
    """The same of late interaction, whose queries are named by their numbers."""

    def __init__(self, job: Job[TradeoffsParams]) -> None:
        self.search, self.factor = maxsim.open_search(job), job.params.sweep.rescore_factor
        texts = len(self.search.counts)
        self.queries = np.arange(count := min(job.params.queries, texts)) * texts // count

    def exact(self, depth: int, _threads: Threads) -> list[Array]:
        """See `VectorSearches.exact`; it has threads of its own."""
        return self.search.best(self.queries, depth).ranks()

    def searcher(self, index: Index, rescore: bool) -> maxsim.Searcher:
        """See `VectorSearches.searcher`; without `rescore` the vectors that the index's codes stand for decide."""
        if not rescore and index.gpu != NONE:
            raise UserError("tradeoffs: codes of an index on GPUs cannot be read; leave false out of sweep.rescore")
        return maxsim.Searcher(self.search, index, self.factor, None if rescore else index.decode)


def run_tradeoffs(job: Job[TradeoffsParams]) -> None:
    """Measure every setting of every index and write `tradeoffs.csv`."""
    params, sweep, lines = job.params, job.params.sweep, list[Line]()
    opened = TokenSearches(job) if maxsim.OFFSETS in job.inputs["passages"].manifest.files else VectorSearches(job)
    gpu, queries = lease_gpus(job), opened.queries
    indexes = list(zip(params.indexes, job.many("index"), strict=True))
    with alone(job.execution.workers) as threads, writing(job) as draft:
        exact = opened.exact(max(params.k), threads)
        with Progress(f"tradeoffs {job.key}", len(indexes), "indexes") as progress:
            for name, artifact in indexes:
                index, size = Index(artifact, threads, gpu), artifact.manifest.facts["bytes_per_vector"]
                for nprobe, ef_search, rescore in settings(index, sweep):
                    index.tune(nprobe, ef_search)
                    searcher = opened.searcher(index, rescore)
                    line: Line = {"index": name, "nprobe": nprobe, "ef_search": ef_search, "rescore": rescore}
                    line |= measure(searcher, queries, exact, params.k, params.repeats)
                    lines.append(line | {"factory": index.factory, "bytes_per_vector": size, "key": artifact.key})
                progress.add(1)
        write_text(draft.path("tradeoffs.csv"), csv_text(lines[0], (line.values() for line in lines)))
        draft.facts |= {"lines": len(lines), "threads": threads.workers}
