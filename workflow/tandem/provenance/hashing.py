"""Files against what is told of them: sizes, then every byte; several threads, however many files."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tandem.artifact import sha256
from tandem.progress import Progress
from tandem.provenance.faults import Fault

AHEAD = 1024  # files that wait for a thread


class Task(NamedTuple):
    """A file to be read, and what its artifact's manifest tells of it."""

    folder: Path
    name: str
    told: dict[str, Any]


def compared(tasks: list[Task], threads: int, quick: bool) -> Iterator[Fault]:
    """The files that are missing or differ from what is told, in their order; `quick` compares sizes alone."""
    total, read = sum(task.told["bytes"] for task in tasks), 0
    work = compare_sizes if quick else compare
    with Progress("verify", total >> 20, "MiB") as progress, ThreadPoolExecutor(threads) as pool:
        for task, fault in zip(tasks, streamed(pool, work, tasks), strict=True):
            read += task.told["bytes"]
            progress.add((read >> 20) - progress.done)
            if fault:
                yield fault


def streamed(
    pool: ThreadPoolExecutor, work: Callable[[Task], Fault | None], items: Iterable[Task]
) -> Iterator[Fault | None]:
    """`pool.map` that has only so many items under way: there may be millions."""
    waiting: deque[Future[Fault | None]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) >= AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def compare_sizes(task: Task) -> Fault | None:
    """A file that is missing or of another size; None if neither."""
    path, size = task.folder / task.name, task.told["bytes"]
    try:
        found = path.stat().st_size
    except OSError as error:
        return Fault(task.folder, "missing", path, f"cannot be read ({error.strerror}); {size:,} bytes are told")
    if found != size:
        what = "truncated" if found < size else "changed"
        return Fault(task.folder, what, path, f"has {found:,} bytes, the manifest tells {size:,}")
    return None


def compare(task: Task) -> Fault | None:
    """A file that differs from what its manifest tells; None if it does not."""
    if fault := compare_sizes(task):
        return fault
    path = task.folder / task.name
    try:
        digest = sha256(path)
    except OSError as error:
        return Fault(task.folder, "missing", path, f"cannot be read ({error.strerror})")
    if digest != task.told["sha256"]:
        return Fault(task.folder, "changed", path, f"has sha256 {digest}, the manifest tells {task.told['sha256']}")
    return None
