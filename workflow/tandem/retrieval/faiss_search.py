"""Run FAISS in threads whose number changes no bit of its results, and search exactly with it.

FAISS's last bits depend on how many OpenMP threads share a call. Here every call has one thread, and calls of a fixed
size run side by side. In exact search FAISS proposes passages in float32 and `exact.py` decides. This module imports no
torch: the OpenMP libraries of both do not work well in one process.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import faiss
import numpy as np

from tandem.cluster.threads import count_usable_cores
from tandem.cluster.work import prefetch_items
from tandem.config.retrieval import search_engine
from tandem.retrieval.embeddings import FloatVectors, Stretches
from tandem.retrieval.exact import (
    EXTRA_PROPOSALS,
    FLOAT32_ROUNDING,
    SLACK_TERMS,
    Array,
    BestPassages,
    SearchEngine,
    pack_keys,
    score_rows,
)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# If the queries of a call have at least so many numbers, FAISS multiplies matrices; otherwise it computes pair by pair.
# With one thread, matrix products are faster from here on (measured with 64 to 768 dimensions). FAISS's own threshold
# of 128,000 is up to 8 times slower.
_MATRIX = 2048
QUERIES_PER_THREAD = 1024  # queries that a thread searches for at once, where memory allows


@dataclass(frozen=True)
class Threads:
    """Hold a pool of `workers` threads in which FAISS uses one thread each."""

    pool: ThreadPoolExecutor
    workers: int

    def map(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """Yield the result of `work` for each item, in order; at once about two items per thread are in progress."""
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            waiting.append(self.pool.submit(work, item))
            if len(waiting) > 2 * self.workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def open_threads(workers: int | None) -> Iterator[Threads]:
    """Open threads in which FAISS uses one thread each; so it does in the caller, too, until the context ends."""
    before = faiss.omp_get_max_threads()
    count = max(1, min(workers or before, count_usable_cores()))
    matrix = faiss.cvar.distance_compute_blas_threshold
    faiss.omp_set_num_threads(1)
    # before FAISS 1.15 the threshold counts queries, and is 20
    faiss.cvar.distance_compute_blas_threshold = min(_MATRIX, matrix)
    try:
        with ThreadPoolExecutor(count, "faiss", faiss.omp_set_num_threads, (1,)) as pool:
            yield Threads(pool, count)
    finally:
        faiss.omp_set_num_threads(before)
        faiss.cvar.distance_compute_blas_threshold = matrix


class BlockSearch:
    """Search in one stretch of passages: stored vectors, (passages, dim), and alphabetical ranks of their ids."""

    def __init__(self, vectors: FloatVectors, ranks: Array, temperature: float) -> None:
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        self.ranks = ranks
        self.temperature = temperature
        # A float32 sum of squares may be low by its rounding: less than a thousandth.
        self.longest = 1.001 * float(
            np.sqrt(np.einsum("ij,ij->i", self.vectors, self.vectors).max())
        )

    def add_to(
        self, best: BestPassages, queries: FloatVectors, threads: Threads, batch: int
    ) -> None:
        """Search for all queries of `best`; each thread for at most `batch` of them at a time."""
        batch = max(1, min(batch, -(-len(queries) // threads.workers)))

        def add(at: slice) -> None:
            best.add(at, self.candidates(queries[at], best.depth, best.find_floors(at)))

        list(
            threads.map(
                add, (slice(first, first + batch) for first in range(0, len(queries), batch))
            )
        )

    def candidates(self, queries: FloatVectors, depth: int, floors: Array) -> Array:
        """Return packed candidates: all of the stretch's best `depth` passages that reach the floor.

        Queries are stored values, (queries, dim). The result has the shape (queries, any); 0 marks no candidate.
        """
        labels, counts = self._propose(queries, depth, floors * self.temperature)
        keys = np.zeros(labels.shape, np.uint64)
        for query, count in enumerate(counts):
            rows = labels[query, :count]
            scores = score_rows(queries[query], self.vectors, rows, self.longest, self.temperature)
            keys[query, :count] = pack_keys(scores, self.ranks[rows])
        return keys

    def _propose(self, queries: FloatVectors, depth: int, floors: Array) -> tuple[Array, Array]:
        """Return FAISS's rows, best first, (queries, any), and how many may be in the exact top `depth`, (queries,).

        A sum of d products is off by at most d unit round-offs of |q||p|, both for the passage and for the one at
        the cut; a few more cover the rounding of the scores themselves.
        """
        wide = np.ascontiguousarray(queries, np.float32)
        count = len(self.vectors)
        lengths = np.linalg.norm(wide.astype(np.float64), axis=1) * self.longest
        error = (wide.shape[1] + SLACK_TERMS) * FLOAT32_ROUNDING * lengths
        k = min(count, depth + EXTRA_PROPOSALS)
        while True:
            scores, labels = faiss.knn(wide, self.vectors, k, faiss.METRIC_INNER_PRODUCT)
            cut = np.maximum(scores[:, min(depth, count) - 1], floors) - 2 * error
            counts = (scores >= cut[:, None]).sum(axis=1)
            width = int(counts.max(initial=0))
            if k == count or width < k:
                return labels[:, :width], counts
            k = min(count, 2 * k)


@search_engine("faiss")
def open_faiss_engine() -> SearchEngine:
    """Return the engine that searches on the CPU."""
    return SearchEngine(search_by_faiss)


def search_by_faiss(
    queries: FloatVectors, passages: Stretches, depth: int, memory: int, workers: int | None
) -> Array:
    """Return the best `depth` passages of each query.

    Args:
        queries: stored values, shape (queries, dim).
        memory: bytes for vectors (two stretches, one being read) and for tables, in addition to the result.
        workers: threads; None takes as many as OpenMP would.
    Returns:
        Packed, shape (queries, depth), in no order; 0 for none.
    """
    best = BestPassages(len(queries), depth)
    read = passages.read(memory * 2 // 3 // (8 * passages.dimension + 16))
    stretches = (
        BlockSearch(passages.join(pieces), ranks, passages.temperature) for pieces, ranks in read
    )
    with open_threads(workers) as threads, prefetch_items(stretches) as coming:
        # Bytes of a query: FAISS's reservoir, scores and labels, candidates' keys, and the merge's copies of both.
        proposals = 80 * (depth + EXTRA_PROPOSALS) + 16 * queries.shape[1]
        batch = min(QUERIES_PER_THREAD, max(1, memory // 3 // threads.workers // proposals))
        for stretch in coming:
            stretch.add_to(best, queries, threads, batch)
    return best.keys
