"""Threads that each compute alone.

FAISS's last bits depend on how many OpenMP threads share a call: k-means, quantising and graphs come out otherwise on
another machine load. Here every call has one thread, and calls of a fixed size run side by side: the same bits on any
number of cores.
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

from tandem.artifact import Job
from tandem.errors import UserError
from tandem.leases import lease

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Threads:
    """A pool of threads in which FAISS uses one thread each.

    Attributes:
        pool: the threads.
        workers: how many.
    """

    pool: ThreadPoolExecutor
    workers: int

    def map(self, work: Callable[[T], R], things: Iterable[T]) -> Iterator[R]:
        """`work` of each thing, in the order of the things; few more than there are threads are under way at once."""
        waiting: deque[Future[R]] = deque()
        for thing in things:
            waiting.append(self.pool.submit(work, thing))
            if len(waiting) > 2 * self.workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def alone(workers: int | None) -> Iterator[Threads]:
    """So many threads, each alone; FAISS uses one thread in the caller too, until the context ends."""
    before, count = faiss.omp_get_max_threads(), max(1, workers or faiss.omp_get_max_threads())
    faiss.omp_set_num_threads(1)
    try:
        with ThreadPoolExecutor(count, "faiss", faiss.omp_set_num_threads, (1,)) as pool:
            yield Threads(pool, count)
    finally:
        faiss.omp_set_num_threads(before)


NONE, REPLICATE, SHARD = "none", "replicate", "shard"
MOST = 2048  # passages a query that FAISS finds on a GPU


def lease_gpus(job: Job) -> str:
    """How a job uses GPUs, which are leased before anything touches them.

    Raises:
        UserError: GPUs are asked for where FAISS has none.
    """
    how = str(job.execution.index_gpu)
    if how != NONE:
        lease(int(job.execution.devices), job.kind)
        if not faiss.get_num_gpus():
            raise UserError(
                f"execution.index_gpu is {how}, but FAISS {faiss.__version__} has no GPU here; "
                "install faiss-gpu (envs/setup.sh), or set it to none"
            )
    return how


def on_gpus(index: Any, how: str) -> Any:
    """An index, copied to the GPUs this process sees.

    Args:
        index: FAISS's, on the CPU.
        how: `none`: as it is; `replicate`: whole on each GPU, which share the queries; `shard`: cut into as many parts.
    Raises:
        UserError: the index has no form for GPUs, such as HNSW.
    """
    if how == NONE:
        return index
    options = faiss.GpuMultipleClonerOptions()
    options.shard = how == SHARD
    options.useFloat16 = True
    try:
        return faiss.index_cpu_to_all_gpus(index, options)
    except RuntimeError as error:
        told = str(error).strip().splitlines()[-1]
        raise UserError(f"execution.index_gpu is {how}, but FAISS cannot search this index on GPUs: {told}") from None


class Nearest:
    """Finds the nearest vector of an index, from any number of threads: FAISS's GPUs serve one call at a time.

    Args:
        index: FAISS's, on the CPU.
        how: see `on_gpus`.
    """

    def __init__(self, index: Any, how: str) -> None:
        self.index, self.turn = on_gpus(index, how), nullcontext() if how == NONE else Lock()

    def __call__(self, vectors: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The row of the nearest vector for each, shape (vectors,)."""
        with self.turn:
            return np.ascontiguousarray(self.index.search(vectors, 1)[1][:, 0])
