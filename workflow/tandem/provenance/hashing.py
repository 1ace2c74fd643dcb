"""Files against what is told of them: sizes, then every byte; several threads, however many files."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tandem.cluster.progress import Progress
from tandem.data.download import readable
from tandem.provenance.faults import Fault
from tandem.store.artifact import MANIFEST
from tandem.store.files import sha256

BATCH, FILES = 1 << 20, 256  # bytes, and files, that a thread is given at once: small ones cost more to hand over
AHEAD = 64  # batches that wait for a thread


class Task(NamedTuple):
    """A file to be read, and what is told of it.

    Attributes:
        folder: the artifact's.
        name: of the file in it.
        told: `bytes` and `sha256`.
        stamp: of the manifest that tells it, see `stamp`; 0 for what has none.
    """

    folder: Path
    name: str
    told: dict[str, Any]
    stamp: int = 0


Item = Task | Fault | None  # None ends what progress counts: an artifact


def stamp(folder: Path) -> int:
    """When an artifact's manifest was written, in nanoseconds; 0 where there is none."""
    try:
        return (folder / MANIFEST).stat().st_mtime_ns
    except OSError:
        return 0


def compared(items: Iterable[Item], threads: int, quick: bool, progress: Progress) -> Iterator[Fault]:
    """Faults that are given, and files that are missing or differ from what is told: all in the order of the items.

    Args:
        items: read as they are needed: there may be millions.
        threads: that read files.
        quick: compare sizes alone.
        progress: counts what has ended, and tells how much was read.
    """
    read, work = 0, partial(compare_all, compare_sizes if quick else compare)
    with ThreadPoolExecutor(threads) as pool:
        for size, ended, found in _streamed(pool, work, _batches(items)):
            read += size
            progress.add(ended, note=f"{readable(read)} {'told' if quick else 'read'}")
            yield from found


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Items in groups that are worth a thread's while."""
    batch, size = list[Item](), 0
    for item in items:
        batch.append(item)
        size += item.told["bytes"] if isinstance(item, Task) else 0
        if size >= BATCH or len(batch) >= FILES:
            yield batch
            batch, size = [], 0
    yield batch


Done = tuple[int, int, list[Fault]]  # bytes that were read, what has ended, faults


def _streamed(
    pool: ThreadPoolExecutor, work: Callable[[list[Item]], Done], batches: Iterable[list[Item]]
) -> Iterator[Done]:
    """`pool.map` that has only so many batches under way."""
    waiting: deque[Future[Done]] = deque()
    for batch in batches:
        waiting.append(pool.submit(work, batch))
        if len(waiting) >= AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def compare_all(one: Callable[[Task], Fault | None], batch: list[Item]) -> Done:
    """What came of a batch; no faults of an artifact that was deleted or made again meanwhile."""
    size, found = 0, list[Fault]()
    for item in batch:
        if isinstance(item, Fault):
            found.append(item)
        elif item is not None:
            size += item.told["bytes"]
            fault = one(item)
            if fault and (not item.stamp or stamp(item.folder) == item.stamp):
                found.append(fault)
    return size, batch.count(None), found


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
