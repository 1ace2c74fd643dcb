"""Work beside the main thread: the next item is prefetched, the previous one written, many mapped by processes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
Item = TypeVar("Item")
Result = TypeVar("Result")
CHUNK = 32  # items that a process gets at once
AHEAD = 4  # chunks that a process may be ahead of the reader


@contextmanager
def ahead(items: Iterator[T]) -> Iterator[Iterator[T]]:
    """The same items in order; a thread prepares the next one, and its exception is raised in that item's place."""
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:

        def take() -> Iterator[T]:
            coming = thread.submit(next, items, None)
            while (item := coming.result()) is not None:
                coming = thread.submit(next, items, None)
                yield item

        yield take()


@contextmanager
def behind(work: Callable[P, object]) -> Iterator[Callable[P, None]]:
    """A function that does `work` in a thread, in the order of the calls, while the caller goes on.

    A call waits for the one before it. An exception of `work` is raised by the next call or at the end of the context,
    which waits for the last call even where the caller itself fails.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="behind") as thread:
        under_way: Future[object] = thread.submit(lambda: None)

        def submit(*args: P.args, **keywords: P.kwargs) -> None:
            nonlocal under_way
            under_way.result()
            under_way = thread.submit(work, *args, **keywords)

        yield submit
        under_way.result()


def ordered_map(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    chunk_size: int = CHUNK,
    start: Callable[[], object] | None = None,
) -> Iterator[Result]:
    """`map(work, items)` by `workers` processes, in the order of the items; one worker is this process.

    Unlike the pool's own map it reads only a few chunks ahead, so that a stream of any length fits into memory. Each
    process calls `start` first.
    """
    if workers <= 1:
        if start:
            start()
        yield from map(work, items)
        return
    stream = iter(items)
    waiting: deque[Future[list[Result]]] = deque()
    # Spawned, not forked: this process may hold threads of Arrow.
    with ProcessPoolExecutor(workers, get_context("spawn"), start) as pool:
        while chunk := list(islice(stream, chunk_size)):
            waiting.append(pool.submit(_map_chunk, work, chunk))
            if len(waiting) >= AHEAD * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _map_chunk(work: Callable[[Item], Result], items: list[Item]) -> list[Result]:
    return [work(item) for item in items]
