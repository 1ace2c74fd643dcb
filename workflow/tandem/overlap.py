"""One thread before and one behind a computation: the next thing is made, and the last one put away, meanwhile."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


@contextmanager
def ahead(things: Iterator[T]) -> Iterator[Iterator[T]]:
    """The same things in the same order, the next one always being made by a thread of its own.

    What making a thing raises is raised where the thing would have come. The thread ends with the context.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:

        def take() -> Iterator[T]:
            """Things as they come."""
            coming = thread.submit(next, things, None)
            while (thing := coming.result()) is not None:
                coming = thread.submit(next, things, None)
                yield thing

        yield take()


@contextmanager
def behind(work: Callable[P, object]) -> Iterator[Callable[P, None]]:
    """The same work, done by a thread of its own in the order of the calls, while the caller goes on.

    A call waits for the one before it, so that at most one is under way. What work raised is raised by the next call,
    or at the end of the context, which waits for the last one; where the caller itself fails, that is finished too.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="behind") as thread:
        under_way: Future[object] = thread.submit(lambda: None)

        def put(*args: P.args, **keywords: P.kwargs) -> None:
            """Wait for the last call, then begin this one."""
            nonlocal under_way
            under_way.result()
            under_way = thread.submit(work, *args, **keywords)

        yield put
        under_way.result()
