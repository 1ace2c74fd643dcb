"""FAISS: threads and GPUs on which it computes the same bits, whatever their number, exact search, and k-means.

FAISS's last bits depend on how many OpenMP threads share a call. Here every call has one thread, and calls of a fixed
size run side by side. On GPUs (faiss-gpu) `execution.index_gpu` decides how several share an index. In exact search
FAISS proposes in float32 and `exact.py` decides. Stage `topics` is k-means. No torch: their OpenMPs share no process
well.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.cluster.scheduler import lease
from tandem.cluster.threads import count_usable_cores
from tandem.cluster.work import prefetch_items
from tandem.data.columns import Floats
from tandem.data.rows import Rows
from tandem.errors import UserError
from tandem.retrieval.embeddings import Embeddings, FloatVectors, Stretches
from tandem.retrieval.exact import (
    EXTRA_PROPOSALS,
    FLOAT32_ROUNDING,
    SLACK_TERMS,
    STRETCH_BYTES,
    Array,
    BestPassages,
    pack_keys,
    score_rows,
)
from tandem.stages.negatives import TopicsParams
from tandem.store.job import Job, writing

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# ways to use GPUs; also "replicate"
NONE = "none"
SHARD = "shard"
# passages per query that FAISS retrieves on a GPU, and lists that it searches there
MOST_ON_GPU = 2048
VECTORS_PER_PIECE = 4096  # vectors that are assigned together
ITERATIONS = 10  # FAISS's number for inverted lists
_SPLIT_DISTANCE = 1 / 1024  # FAISS's: how far the halves of a split centroid are moved apart
# Numbers in the queries of a call from which FAISS multiplies matrices; below it takes pair by pair. With one thread
# products are faster from here on (measured with 64 to 768 dimensions), by FAISS's own 128,000 up to 8 times slower.
_MATRIX = 2048
_CENTROIDS_PER_TASK = 64  # centroids whose points are added up by one thread at a time
QUERIES_PER_THREAD = 1024  # queries that a thread searches for at once, where memory allows


@dataclass(frozen=True)
class Threads:
    """Hold a pool of `workers` threads in which FAISS uses one thread each."""

    pool: ThreadPoolExecutor
    workers: int

    def map(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """`work` of each item, in the order of the items; few more than there are threads are in progress at once."""
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            waiting.append(self.pool.submit(work, item))
            if len(waiting) > 2 * self.workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def open_threads(workers: int | None) -> Iterator[Threads]:
    """Open threads that compute alone; FAISS uses one thread in the caller too, until the context ends."""
    before = faiss.omp_get_max_threads()
    count = max(1, min(workers or before, count_usable_cores()))
    matrix = faiss.cvar.distance_compute_blas_threshold
    faiss.omp_set_num_threads(1)
    # before 1.15 it counts queries, and is 20
    faiss.cvar.distance_compute_blas_threshold = min(_MATRIX, matrix)
    try:
        with ThreadPoolExecutor(count, "faiss", faiss.omp_set_num_threads, (1,)) as pool:
            yield Threads(pool, count)
    finally:
        faiss.omp_set_num_threads(before)
        faiss.cvar.distance_compute_blas_threshold = matrix


@contextmanager
def explain_errors(problem: str) -> Iterator[None]:
    """Turn FAISS's errors into a `UserError` of the problem and FAISS's words, without their C++ context."""
    try:
        yield
    except MemoryError:
        raise UserError(f"{problem}: not enough memory") from None
    except RuntimeError as error:
        # Error in <function> at <file>.cpp:<line>: Error: '<condition>' failed: <message>, of which the last two vary.
        line = str(error).strip().splitlines()[-1]
        words = re.sub(r"^Error in .* at \S+:\d+: ", "", line)
        message = re.sub(r"^Error: '(.*?)' failed:? ?(?=.)", "", words)
        raise UserError(f"{problem}: {message}") from None


def lease_gpus(job: Job[Any]) -> str:
    """Return how a job uses GPUs, leased before anything touches them; a `UserError` where FAISS has none."""
    mode = job.execution.index_gpu
    if mode != NONE:
        lease(job.execution.devices, job.kind)
        if not faiss.get_num_gpus():
            problem = (
                f"execution.index_gpu is {mode}, but FAISS {faiss.__version__} has no GPU here"
            )
            raise UserError(
                f"{problem}; install faiss-gpu in place of faiss-cpu, or set it to none"
            )
    return mode


def on_gpus(index: Any, mode: str) -> Any:
    """Return an index, copied to the GPUs this process sees; a `UserError` if it has no form for GPUs, such as HNSW.

    `mode` is `none`: as it is; `replicate`: whole on each GPU, which share the queries; or `shard`: a part on each.
    """
    if mode == NONE:
        return index
    options = faiss.GpuMultipleClonerOptions()
    options.shard = mode == SHARD
    options.useFloat16 = True
    with explain_errors(
        f"execution.index_gpu is {mode}, but FAISS cannot search this index on GPUs"
    ):
        return faiss.index_cpu_to_all_gpus(index, options)


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
        """Packed candidates, (queries, any), 0 for none: all of the stretch's best `depth` that reach the floor.

        Queries are stored values, (queries, dim).
        """
        labels, counts = self._propose(queries, depth, floors * self.temperature)
        keys = np.zeros(labels.shape, np.uint64)
        for query, count in enumerate(counts):
            rows = labels[query, :count]
            scores = score_rows(queries[query], self.vectors, rows, self.longest, self.temperature)
            keys[query, :count] = pack_keys(scores, self.ranks[rows])
        return keys

    def _propose(self, queries: FloatVectors, depth: int, floors: Array) -> tuple[Array, Array]:
        """Rows by FAISS, best first, shape (queries, any), and how many may be in the exact top `depth`, (queries,).

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


def search_by_faiss(
    queries: FloatVectors, passages: Stretches, depth: int, memory: int, workers: int | None
) -> Array:
    """Return the best `depth` passages of each query.

    Args:
        queries: stored values, shape (queries, dim).
        memory: bytes for vectors (two stretches, one being read) and tables beside the result.
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
        # A proposal: FAISS's reservoir, scores and labels, candidates' keys, and the merge's copies of both.
        proposals = 80 * (depth + EXTRA_PROPOSALS) + 16 * queries.shape[1]
        batch = min(QUERIES_PER_THREAD, max(1, memory // 3 // threads.workers // proposals))
        for stretch in coming:
            stretch.add_to(best, queries, threads, batch)
    return best.keys


def search_exactly(
    passages: Embeddings, queries: Array, ranks: Array, depth: int, threads: Threads
) -> BestPassages:
    """Return each query's exact top `depth`, by a pass over all passages; `ranks` has that of each row's id."""
    best = BestPassages(len(queries), min(depth, passages.rows))
    with Progress("exact search", passages.rows, "passages") as progress:
        stretches = Stretches(passages, range(len(passages)), ranks, progress)
        for pieces, own in stretches.read(STRETCH_BYTES // (4 * passages.dimension)):
            BlockSearch(stretches.join(pieces), own, passages.temperature).add_to(
                best, queries, threads, QUERIES_PER_THREAD
            )
    return best


class Nearest:
    """Finds the nearest vector of a CPU's index, from any number of threads: FAISS's GPUs serve one call at a time."""

    def __init__(self, index: Any, mode: str) -> None:
        self.index = on_gpus(index, mode)
        self.turn = nullcontext() if mode == NONE else Lock()

    def __call__(self, vectors: Floats) -> Rows:
        """Return the row of the nearest vector for each, shape (vectors,)."""
        with self.turn:
            return np.ascontiguousarray(self.index.search(vectors, 1)[1][:, 0])


def find_centroids(
    vectors: Floats, count: int, seed: int, threads: Threads, gpu: str = NONE
) -> Floats:
    """Centroids of at least `count` vectors by the angle between them, shape (count, dim), of length 1.

    Lloyd's algorithm as FAISS runs it for inner products; `seed` draws the vectors to start from.
    """
    centres = _normalise(
        vectors[np.sort(np.random.default_rng(seed).choice(len(vectors), count, replace=False))]
    )
    for _ in range(ITERATIONS):
        index = faiss.IndexFlatIP(centres.shape[1])
        index.add(centres)
        labels = assign(Nearest(index, gpu), vectors, threads)
        centres = _normalise(_sum_by_label(vectors, labels, count, threads))
    return centres


def _normalise(vectors: Floats) -> Floats:
    """Return the vectors at length 1; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))


def assign(nearest: Nearest, vectors: Floats, threads: Threads) -> Rows:
    """Return the nearest vector of an index for each vector, shape (vectors,), a piece at a time."""
    parts = (
        vectors[start : start + VECTORS_PER_PIECE]
        for start in range(0, len(vectors), VECTORS_PER_PIECE)
    )
    return np.concatenate(list(threads.map(nearest, parts)))


def _sum_by_label(vectors: Floats, labels: Rows, count: int, threads: Threads) -> Floats:
    """Sum of the vectors of each label, in the order of the vectors; empty ones split the largest."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=count)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    sums = np.zeros((count, vectors.shape[1]), np.float32)

    def add(first: int) -> None:
        own = np.arange(first, min(first + _CENTROIDS_PER_TASK, count))
        own = own[sizes[own] > 0]
        if len(own):
            points = vectors[order[starts[own[0]] : ends[own[-1]]]]
            sums[own] = np.add.reduceat(points, starts[own] - starts[own[0]], axis=0)

    list(threads.map(add, range(0, count, _CENTROIDS_PER_TASK)))
    _split(sums, sizes)
    return sums


def _split(sums: Floats, sizes: Rows) -> None:
    """Give every empty centroid half of the largest one's points, in place."""
    apart = np.where(np.arange(sums.shape[1]) % 2, -_SPLIT_DISTANCE, _SPLIT_DISTANCE).astype(
        np.float32
    )
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        sums[empty] = sums[largest] * (1 + apart)
        sums[largest] = sums[largest] * (1 - apart)
        sizes[empty] = sizes[largest] // 2
        sizes[largest] -= sizes[empty]


def run_topics(job: Job[TopicsParams]) -> None:
    """Write `topics.parquet`: each query's cluster by the angle between vectors, for batches of one topic (TAS)."""
    embeddings = Embeddings(job.inputs["queries"], "queries")
    count = job.params.clusters
    if count > embeddings.rows:
        problem = f"{job.key}: {count:,} topics of {embeddings.rows:,} queries"
        raise UserError(f"{problem}; lower train.topics.clusters to that or less")
    vectors = np.ascontiguousarray(embeddings.take(0, embeddings.rows), np.float32)
    with open_threads(job.execution.workers) as threads:
        index = faiss.IndexFlatIP(embeddings.dimension)
        index.add(find_centroids(vectors, count, job.params.seed, threads))
        topics = assign(Nearest(index, NONE), vectors, threads)
    columns = {"query_id": embeddings.read_query_ids(), "topic": topics.astype(np.int32)}
    with writing(job) as draft:
        pq.write_table(pa.table(columns), draft.path("topics.parquet"))
        sizes = np.bincount(topics, minlength=count)
        draft.facts |= {
            "queries": len(topics),
            "smallest": int(sizes.min()),
            "largest": int(sizes.max()),
        }
