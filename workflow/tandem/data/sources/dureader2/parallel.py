"""A map over a long stream by several processes: results in the stream's order, with few items held at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
CHUNK = 32  # items a process gets at once
AHEAD = 4  # chunks a process may be ahead of the reader


def ordered_map(work: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """`map(work, items)` by `workers` processes; one worker is this process.

    Unlike the pool's own map it reads no further than a few chunks ahead, so that a stream of any length fits.
    """
    if workers <= 1:
        yield from map(work, items)
        return
    stream = iter(items)
    waiting: deque[Future[list[Result]]] = deque()
    # Spawned, not forked: this process may hold threads of Arrow.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        while chunk := list(islice(stream, CHUNK)):
            waiting.append(pool.submit(_all, work, chunk))
            if len(waiting) >= AHEAD * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _all(work: Callable[[Item], Result], items: list[Item]) -> list[Result]:
    return [work(item) for item in items]
