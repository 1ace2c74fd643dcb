"""Threads that each compute alone.

FAISS's last bits depend on how many OpenMP threads share a call: k-means, quantising and graphs come out otherwise on
another machine load. Here every call has one thread, and calls of a fixed size run side by side: the same bits on any
number of cores.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import faiss

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
