"""Stage `tradeoffs`: recall against exact search, latency and size of several indexes, swept, in one job.

All indexes answer the same queries. Latency is that of one query at a time by one thread, and of all queries together
by all threads; each is the median of some repetitions. Times are measured: they come out otherwise each time.
"""

import csv
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

from tandem.cluster.progress import Progress
from tandem.data.order import Order
from tandem.search.ann import Searcher, opened, spread
from tandem.search.exact import Array
from tandem.search.indexes.gpus import wanted
from tandem.search.indexes.opened import Index
from tandem.search.indexes.recall import Ranks, exact, recall
from tandem.search.indexes.threads import Threads, alone
from tandem.store.job import Job, writing

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
    passages, asked = opened(job)
    gpu = wanted(job)
    ranks = Order(job.inputs["dataset"]).ranks
    queries, ks, sweep = spread(asked, job.params["queries"]), job.params["k"], job.params["sweep"]
    true = exact(passages, queries, ranks, max(ks))
    told = list(zip(job.params["indexes"], job.many("index"), strict=True))
    with Progress(f"tradeoffs {job.key}", len(told), "indexes") as progress:
        for name, artifact in told:
            index = Index(artifact, threads, gpu)
            for setting in settings(index, sweep):
                index.tune(setting["nprobe"], setting["ef_search"])
                params = {"rescore": setting["rescore"], "rescore_factor": sweep["rescore_factor"]}
                searcher = Searcher(index, passages, ranks, params)
                size = artifact.manifest.facts["bytes_per_vector"]
                facts = {"factory": index.meta["factory"], "bytes_per_vector": size}
                measured = measure(searcher, queries, true, ks, job.params["repeats"])
                yield {"index": name, **setting, **measured, **facts, "key": artifact.key}
            progress.add(1)


def run(job: Job) -> None:
    """Measure and write `tradeoffs.csv`."""
    with alone(job.execution.workers) as threads, writing(job) as draft:
        measured = list(lines(job, threads))
        with open(draft.path("tradeoffs.csv"), "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(measured[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(measured)
        draft.facts |= {"lines": len(measured), "threads": threads.workers}
