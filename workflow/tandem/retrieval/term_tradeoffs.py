"""Stage `term_tradeoffs`: weights of terms searched exactly and in Lucene: recall, latency, active terms and bytes.

Latency is of one query at a time by one thread, throughput of all queries: times differ every time. The weights of all
passages are in memory.
"""

import csv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import numpy as np

from tandem.data.rows import Order
from tandem.retrieval.exact import measured, unpack
from tandem.retrieval.impacts import Impacts, query_impacts
from tandem.retrieval.retrieve import open_as
from tandem.retrieval.sparse_search import QUERIES, best_of
from tandem.retrieval.term_weights import TermWeights
from tandem.stages.retrieval import TradeoffsParams
from tandem.store.job import Job, writing

ALONE = 100  # queries that are searched for one at a time
WEIGHT = {"fp16": 6, "fp32": 8}  # bytes of a term's number and its weight

Line = dict[str, str | float | None]


def run(job: Job[TradeoffsParams]) -> None:
    """Measure both searches and write `tradeoffs.csv`, in the columns of the stage `tradeoffs` and `active_terms`."""
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

        best = exact(0, sample.shape[0], lucene.threads)
        size = index.manifest.facts["bytes_per_passage"]
        searches = [
            ("exact", "products", exact, WEIGHT[passages.dtype] * passages.active),
            ("lucene", "impacts", impacts, size),
        ]
        lines = [
            Line(index=name, nprobe=None, ef_search=None, rescore=False)
            | _measured(search, best, sample.shape[0], params, lucene.threads)
            | Line(factory=kind, bytes_per_vector=size, key=artifact.key, active_terms=passages.active)
            for (name, kind, search, size), artifact in zip(searches, (passages.artifact, index), strict=True)
        ]
        with open(draft.path("tradeoffs.csv"), "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
        draft.facts |= {"lines": len(lines), "threads": lucene.threads, "active_query_terms": queries.active}


def _measured(
    search: Callable[[int, int, int], list[list[str]]],
    best: list[list[str]],
    count: int,
    params: TradeoffsParams,
    threads: int,
) -> dict[str, float]:
    """What `measured` says of a search for some queries."""
    ids, exact = ([np.array(docs) for docs in each] for each in (search(0, count, threads), best))
    alone = (partial(search, at, at + 1, 1) for at in range(min(ALONE, count)))
    return measured(ids, exact, params.k, alone, partial(search, 0, count, threads), params.repeats)
