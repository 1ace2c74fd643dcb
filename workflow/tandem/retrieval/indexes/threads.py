"""Threads and GPUs on which FAISS computes the same bits, whatever their number.

FAISS's last bits depend on how many OpenMP threads share a call: k-means, quantising and graphs differ under another
machine load. Here every call has one thread, and calls of a fixed size run side by side: the same bits on any number of
cores. On GPUs, where faiss-gpu is installed, `execution.index_gpu` decides how several share an index.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import faiss
import numpy as np

from tandem.cluster.leases import lease
from tandem.errors import UserError
from tandem.store.job import Job

T = TypeVar("T")
R = TypeVar("R")

NONE, REPLICATE, SHARD = "none", "replicate", "shard"
MOST = 2048  # passages per query that FAISS retrieves on a GPU


@dataclass(frozen=True)
class Threads:
    """A pool of `workers` threads in which FAISS uses one thread each."""

    pool: ThreadPoolExecutor
    workers: int

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """`work` of each item, in the order of the items; few more than there are threads are in progress at once."""
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(self.pool.submit(work, item))
            if len(waiting) > 2 * self.workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def alone(workers: int | None) -> Iterator[Threads]:
    """Threads that compute alone; FAISS uses one thread in the caller too, until the context ends."""
    before, count = faiss.omp_get_max_threads(), max(1, workers or faiss.omp_get_max_threads())
    faiss.omp_set_num_threads(1)
    try:
        with ThreadPoolExecutor(count, "faiss", faiss.omp_set_num_threads, (1,)) as pool:
            yield Threads(pool, count)
    finally:
        faiss.omp_set_num_threads(before)


def faiss_error(error: RuntimeError) -> str:
    """The last line of FAISS's message, without its C++ context."""
    return str(error).strip().splitlines()[-1]


def lease_gpus(job: Job[Any]) -> str:
    """How a job uses GPUs, leased before anything touches them; a `UserError` where FAISS has none."""
    mode = job.execution.index_gpu
    if mode != NONE:
        lease(job.execution.devices, job.kind)
        if not faiss.get_num_gpus():
            raise UserError(
                f"execution.index_gpu is {mode}, but FAISS {faiss.__version__} has no GPU here; "
                "install faiss-gpu (envs/setup.sh), or set it to none"
            )
    return mode


def on_gpus(index: Any, mode: str) -> Any:
    """An index, copied to the GPUs this process sees; a `UserError` if it has no form for GPUs, such as HNSW.

    `mode` is `none`: as it is; `replicate`: whole on each GPU, which share the queries; or `shard`: a part on each.
    """
    if mode == NONE:
        return index
    options = faiss.GpuMultipleClonerOptions()
    options.shard = mode == SHARD
    options.useFloat16 = True
    try:
        return faiss.index_cpu_to_all_gpus(index, options)
    except RuntimeError as error:
        problem = f"FAISS cannot search this index on GPUs: {faiss_error(error)}"
        raise UserError(f"execution.index_gpu is {mode}, but {problem}") from None


class Nearest:
    """Finds the nearest vector of a CPU's index, from any number of threads: FAISS's GPUs serve one call at a time."""

    def __init__(self, index: Any, mode: str) -> None:
        self.index, self.turn = on_gpus(index, mode), nullcontext() if mode == NONE else Lock()

    def __call__(self, vectors: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The row of the nearest vector for each, shape (vectors,)."""
        with self.turn:
            return np.ascontiguousarray(self.index.search(vectors, 1)[1][:, 0])
