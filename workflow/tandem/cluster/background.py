"""Prefetch the next item and write the previous one in background threads."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


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
