"""Stage `term_tradeoffs`: weights of terms searched exactly, in Lucene and in Seismic: recall, latency, terms, bytes.

Seismic ranks by its own scores here. Latency is of one query at a time by one thread, throughput of all queries: times
differ every time. The weights of all passages are in memory.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import numpy as np

from tandem.data.rows import Order
from tandem.retrieval.exact import measured, unpack
from tandem.retrieval.impacts import Impacts, query_impacts
from tandem.retrieval.retrieve import open_as
from tandem.retrieval.seismic import Seismic
from tandem.retrieval.sparse_search import QUERIES, best_of
from tandem.retrieval.term_weights import TermWeights
from tandem.stages.retrieval import TermTradeoffsParams
from tandem.store.artifact import Artifact
from tandem.store.files import csv_text, write_text
from tandem.store.job import Job, writing

ALONE = 100  # queries that are searched for one at a time
WEIGHT = {"fp16": 6, "fp32": 8}  # bytes of a term's number and its weight

Line = dict[str, str | float | None]
Search = Callable[[int, int, int], list[list[str]]]  # of the queries from one to another, by so many threads


def run(job: Job[TermTradeoffsParams]) -> None:
    """Measure the searches and write `tradeoffs.csv`, in the columns of the stage `tradeoffs` and `active_terms`."""
    params = job.params
    passages, queries = open_as(TermWeights, job, params.split)
    order, depth, count = Order(job.inputs["dataset"]), max(params.k), min(params.queries, queries.rows)
    sample = queries.take(0, queries.rows)[np.arange(count) * queries.rows // count]
    sample = sample[np.flatnonzero(np.diff(sample.indptr))]
    rounded, inverted = query_impacts(sample), passages.take(0, passages.rows).T.tocsr()
    index = job.inputs["index"]
    with closing(Impacts(index, passages, job.execution)) as lucene, writing(job) as draft:

        def exact(first: int, stop: int, threads: int) -> list[list[str]]:
            parts = [sample[at : min(at + QUERIES, stop)] for at in range(first, stop, QUERIES)]
            options = inverted, order.ranks, depth, passages.temperature
            with ThreadPoolExecutor(threads) as pool:
                found = pool.map(lambda part: best_of(part, *options), parts)
                return [order.ids(unpack(np.sort(row[row > 0])[::-1])[1]) for keys in found for row in keys]

        def impacts(first: int, stop: int, threads: int) -> list[list[str]]:
            names = list(map(str, range(stop - first)))
            hits = {name: docs for name, docs, _ in lucene.search(names, rounded[first:stop], depth, threads)}
            return [hits.get(name, []) for name in names]

        def approximate(engine: Seismic, first: int, stop: int, threads: int) -> list[list[str]]:
            return [
                order.ids(order.ranks[rows].astype(np.int64))
                for rows in engine.search(sample[first:stop], depth, threads)
            ]

        best = exact(0, sample.shape[0], lucene.threads)
        searches: list[tuple[str, str, Search, float, Artifact]] = [
            ("exact", "products", exact, WEIGHT[passages.dtype] * passages.active, passages.artifact),
            ("lucene", "impacts", impacts, index.manifest.facts["bytes_per_passage"], index),
        ]
        for how, built in zip(params.seismic, job.many("seismic"), strict=True):
            engine = partial(approximate, Seismic(built, passages, how))
            searches.append((how.name, "seismic", engine, built.manifest.facts["bytes_per_passage"], built))
        lines = [
            Line(index=name, nprobe=None, ef_search=None, rescore=False)
            | _measured(search, best, sample.shape[0], params, lucene.threads)
            | Line(factory=kind, bytes_per_vector=size, key=artifact.key, active_terms=passages.active)
            for name, kind, search, size, artifact in searches
        ]
        write_text(draft.path("tradeoffs.csv"), csv_text(lines[0], (line.values() for line in lines)))
        draft.facts |= {"lines": len(lines), "threads": lucene.threads, "active_query_terms": queries.active}


def _measured(
    search: Search,
    best: list[list[str]],
    count: int,
    params: TermTradeoffsParams,
    threads: int,
) -> dict[str, float]:
    """What `measured` says of a search for some queries."""
    ids, exact = ([np.array(docs) for docs in each] for each in (search(0, count, threads), best))
    alone = (partial(search, at, at + 1, 1) for at in range(min(ALONE, count)))
    return measured(ids, exact, params.k, alone, partial(search, 0, count, threads), params.repeats)
