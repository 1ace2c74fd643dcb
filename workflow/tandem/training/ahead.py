"""The next batch is drawn while the current one is computed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def ahead(things: Iterator[T]) -> Iterator[Iterator[T]]:
    """The same things in the same order, the next one always being made by a thread of its own.

    What making a thing raises is raised where the thing would have come. The thread ends with the context.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as thread:

        def take() -> Iterator[T]:
            """Things as they come."""
            coming = thread.submit(next, things, None)
            while (thing := coming.result()) is not None:
                coming = thread.submit(next, things, None)
                yield thing

        yield take()
