"""Stage `tradeoffs`: several indexes compared with exact search.

They are compared by recall, latency of one query at a time on one thread, throughput of all queries on all threads, and
size. This module needs no torch.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.contrib.indexes.ann import (
    OpenedIndex,
    VectorSearcher,
    list_shares_found,
    search_exactly,
)
from tandem.data.rows import PassageOrder
from tandem.extras.faiss_gpus import lease_gpus
from tandem.extras.measuring import measure_times
from tandem.extras.searched_indexes import compared_searches, space_evenly
from tandem.extras.tradeoffs_options import TradeoffsParams, TradeoffSweep
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array, BestPassages
from tandem.retrieval.faiss_search import Threads, open_threads
from tandem.retrieval.retrieve import open_embeddings
from tandem.stages import declaration
from tandem.store.files import csv_text, write_text
from tandem.store.job import Job, writing

_Line = dict[str, str | float | None]


def iterate_settings(
    index: OpenedIndex, sweep: TradeoffSweep
) -> Iterator[tuple[int | None, int | None, bool]]:
    """Yield (nprobe, ef_search, rescore) of an index: lists or candidates if any, with and without exact scores."""
    within = [number for number in sweep.nprobe if number <= index.lists] or [index.lists]
    nprobe: list[int] | list[None] = within if index.lists else [None]
    ef_search: tuple[int, ...] | list[None] = sweep.ef_search if index.is_graph else [None]
    return product(nprobe, ef_search, sweep.rescore)


def measure(
    searcher: Any,
    queries: Array,
    exact: BestPassages,
    ks: tuple[int, ...],
    repeats: int,
    rescored: bool,
) -> dict[str, float]:
    """Measure a searcher's `search(queries, depth)`, for some queries down to the largest k: recall and times.

    With exact scores (`rescored`), any of equally good passages at the cut counts as retrieved, as in `ann`.
    """
    depth = max(ks)

    def search_alone(query: int) -> BestPassages:
        best: BestPassages = searcher.search(queries[query : query + 1], depth)
        return best

    def search_together() -> BestPassages:
        best: BestPassages = searcher.search(queries, depth)
        return best

    retrieved = search_together()
    measures = {}
    for k in ks:
        shares = list_shares_found(retrieved, exact, k, rescored)
        measures[f"recall@{k}"] = round(float(np.mean(shares)), 4)
    return measures | measure_times(len(queries), search_alone, search_together, repeats)


@compared_searches("text")
class VectorSearches:
    """Runs the compared searches of single vectors, for a sample of queries."""

    def __init__(self, job: Job[TradeoffsParams]) -> None:
        self.passages, embedded = open_embeddings(job, Embeddings)
        self.queries = embedded.pick(space_evenly(embedded.rows, job.params.queries))
        self.ranks = PassageOrder(job.inputs["dataset"]).ranks
        self.depth = max(job.params.k)
        self.factor = job.params.sweep.rescore_factor

    def exact(self, threads: Threads) -> BestPassages:
        """Return each query's passages by exact search."""
        return search_exactly(self.passages, self.queries, self.ranks, self.depth, threads)

    def through(self, index: OpenedIndex, rescore: bool) -> VectorSearcher:
        """Return a search through an index; with `rescore`, exact scores decide."""
        return VectorSearcher(index, self.passages, self.ranks, rescore, self.factor)


def run(job: Job[TradeoffsParams]) -> None:
    """Measure every setting of every index and write `tradeoffs.csv`."""
    params = job.params
    sweep = job.params.sweep
    lines = list[_Line]()
    searches = compared_searches[declaration(job.inputs["passages"].kind).vectors](job)
    gpu = lease_gpus(job)
    indexes = list(zip(params.indexes, job.many("index"), strict=True))
    with open_threads(job.execution.workers) as threads, writing(job) as draft:
        exact = searches.exact(threads)
        with Progress(f"tradeoffs {job.key}", len(indexes), "indexes") as progress:
            for name, artifact in indexes:
                # Each width is compared as it is set.
                index = OpenedIndex(artifact, threads, gpu, widen=False)
                size = artifact.manifest.facts["bytes_per_vector"]
                for nprobe, ef_search, rescore in iterate_settings(index, sweep):
                    index.tune(nprobe, ef_search)
                    line: _Line = {
                        "index": name,
                        "nprobe": nprobe,
                        "ef_search": ef_search,
                        "rescore": rescore,
                    }
                    line |= measure(
                        searches.through(index, rescore),
                        searches.queries,
                        exact,
                        params.k,
                        params.repeats,
                        rescore,
                    )
                    lines.append(
                        line
                        | {"factory": index.factory, "bytes_per_vector": size, "key": artifact.key}
                    )
                progress.add(1)
        write_text(
            draft.path("tradeoffs.csv"), csv_text(lines[0], (line.values() for line in lines))
        )
        draft.facts |= {"lines": len(lines), "threads": threads.workers}
