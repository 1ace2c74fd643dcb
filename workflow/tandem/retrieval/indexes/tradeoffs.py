"""Stage `tradeoffs`: several indexes compared with exact search, by recall, latency and size. No torch here.

Latency is of one query at a time by one thread, throughput of all queries by all threads: times differ every time.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

from tandem.cluster.progress import Progress
from tandem.config.indexes import TradeoffSweep
from tandem.data.rows import PassageOrder
from tandem.errors import UserError
from tandem.retrieval import maxsim
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array, measured, spaced
from tandem.retrieval.faiss_search import exact_best
from tandem.retrieval.indexes.search import Index, VectorSearcher
from tandem.retrieval.indexes.threads import NONE, Threads, alone, lease_gpus
from tandem.retrieval.retrieve import open_embeddings
from tandem.stages.retrieval import TradeoffsParams
from tandem.store.files import csv_text, write_text
from tandem.store.job import Job, writing

Line = dict[str, str | float | None]


def settings(index: Index, sweep: TradeoffSweep) -> Iterator[tuple[int | None, int | None, bool]]:
    """(nprobe, ef_search, rescore) of an index: lists or candidates where it has any, without and with exact scores."""
    within = [number for number in sweep.nprobe if number <= index.lists] or [index.lists]
    nprobe: list[int] | list[None] = within if index.lists else [None]
    ef_search: tuple[int, ...] | list[None] = sweep.ef_search if index.is_graph else [None]
    return product(nprobe, ef_search, sweep.rescore)


def measure(searcher: Any, queries: Array, exact: list[Array], ks: tuple[int, ...], repeats: int) -> dict[str, float]:
    """What `measured` says of a search, by `best(queries, depth)`, for some queries down to the largest k."""
    search = partial(searcher.best, depth=max(ks))
    together = partial(search, queries)
    return measured(together().ranks(), exact, ks, lambda at: search(queries[at : at + 1]), together, repeats)


def open_searches(
    job: Job[TradeoffsParams],
) -> tuple[Array, Callable[[Threads], list[Array]], Callable[[Index, bool], Any]]:
    """What is compared, of single vectors or late interaction, for a sample of queries.

    Returns:
        The queries, vectors or numbers; a function to each one's passages by exact search, best first; and one from an
        `Index`, and whether exact scores decide, to a search through it.
    """
    params, depth, factor = job.params, max(job.params.k), job.params.sweep.rescore_factor
    if maxsim.OFFSETS in job.inputs["passages"].manifest.files:
        search = maxsim.open_search(job)
        numbers = spaced(len(search.counts), params.queries)

        def through(index: Index, rescore: bool) -> maxsim.TokenSearcher:
            if not rescore and index.gpu != NONE:
                raise UserError("tradeoffs: codes of an index on GPUs cannot be read; leave false out of sweep.rescore")
            return maxsim.TokenSearcher(search, index, factor, None if rescore else index.decode)

        return numbers, lambda _: search.best(numbers, depth).ranks(), through
    passages, embedded = open_embeddings(job, Embeddings)
    ranks, queries = PassageOrder(job.inputs["dataset"]).ranks, embedded.at(spaced(embedded.rows, params.queries))

    def exact(threads: Threads) -> list[Array]:
        return exact_best(passages, queries, ranks, depth, threads).ranks()

    return queries, exact, lambda index, rescore: VectorSearcher(index, passages, ranks, rescore, factor)


def run(job: Job[TradeoffsParams]) -> None:
    """Measure every setting of every index and write `tradeoffs.csv`."""
    params, sweep, lines = job.params, job.params.sweep, list[Line]()
    queries, exactly, through = open_searches(job)
    gpu = lease_gpus(job)
    indexes = list(zip(params.indexes, job.many("index"), strict=True))
    with alone(job.execution.workers) as threads, writing(job) as draft:
        exact = exactly(threads)
        with Progress(f"tradeoffs {job.key}", len(indexes), "indexes") as progress:
            for name, artifact in indexes:
                index, size = Index(artifact, threads, gpu), artifact.manifest.facts["bytes_per_vector"]
                for nprobe, ef_search, rescore in settings(index, sweep):
                    index.tune(nprobe, ef_search)
                    line: Line = {"index": name, "nprobe": nprobe, "ef_search": ef_search, "rescore": rescore}
                    line |= measure(through(index, rescore), queries, exact, params.k, params.repeats)
                    lines.append(line | {"factory": index.factory, "bytes_per_vector": size, "key": artifact.key})
                progress.add(1)
        write_text(draft.path("tradeoffs.csv"), csv_text(lines[0], (line.values() for line in lines)))
        draft.facts |= {"lines": len(lines), "threads": threads.workers}
