"""Do long work in further threads and processes, and in parts, which shards divide among themselves.

A killed stage resumes after the parts that are finished.
"""

import hashlib
import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tandem.cluster.progress import Progress
from tandem.stages import KINDS
from tandem.stages.base import Json
from tandem.store.files import files_in, replacing, sha256, write_json
from tandem.store.job import Job, plain

_P = ParamSpec("_P")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_ITEMS_PER_CHUNK = 32  # items that a process gets at once
_CHUNKS_AHEAD = 4  # chunks that a process may be ahead of the reader
# the folder, next to the artifact's files, of pieces that are joined and then removed
WORK_FOLDER = "work"


@contextmanager
def prefetch_items(items: Iterator[_Item]) -> Iterator[Iterator[_Item]]:
    """Yield the same items in order, while a thread prepares the next one; its exceptions are raised here."""
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:

        def take() -> Iterator[_Item]:
            coming = thread.submit(next, items, None)
            while (item := coming.result()) is not None:
                coming = thread.submit(next, items, None)
                yield item

        yield take()


@contextmanager
def write_behind(work: Callable[_P, object]) -> Iterator[Callable[_P, None]]:
    """Yield a function that does `work` in a thread, in the order of the calls, while the caller continues.

    A call waits for the one before it. An exception of `work` is raised by the next call or at the end of the context,
    which waits for the last call even if the caller itself fails.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="behind") as thread:
        under_way: Future[object] = thread.submit(lambda: None)

        def submit(*args: _P.args, **keywords: _P.kwargs) -> None:
            nonlocal under_way
            under_way.result()
            under_way = thread.submit(work, *args, **keywords)

        yield submit
        under_way.result()


def map_in_order(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    workers: int,
    chunk_size: int = _ITEMS_PER_CHUNK,
    start: Callable[[], object] | None = None,
) -> Iterator[_Result]:
    """Map items by `workers` processes, in the order of the items; one worker is this process.

    Unlike the pool's own map it reads only a few chunks ahead, so that a stream of any length fits into memory. Each
    process calls `start` first.
    """
    if workers <= 1:
        if start:
            start()
        yield from map(work, items)
        return
    stream = iter(items)
    waiting: deque[Future[list[_Result]]] = deque()
    # Spawned, not forked: this process may hold threads of Arrow.
    with ProcessPoolExecutor(workers, get_context("spawn"), start) as pool:
        while chunk := list(islice(stream, chunk_size)):
            waiting.append(pool.submit(_map_chunk, work, chunk))
            if len(waiting) >= _CHUNKS_AHEAD * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _map_chunk(work: Callable[[_Item], _Result], items: list[_Item]) -> list[_Result]:
    return [work(item) for item in items]


def compute_origin(job: Job[Any], files: object) -> str:
    """Return a digest of what determines a job's result: its parameters, and `files`, digests of the files it reads."""
    return hashlib.sha256(
        json.dumps([plain(job.params), files], sort_keys=True).encode()
    ).hexdigest()


@dataclass(frozen=True)
class Pieces:
    """Write files or folders that appear only when complete, each marked as finished by a JSON file next to it.

    A piece with another `compute_origin` does not count.
    """

    folder: Path
    origin: str

    def write(self, name: str, write: Callable[[Path], Json | None], **facts: object) -> Json:
        """Call `write` with the path of a new piece; return its facts: `facts`, and those that `write` returns."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished:
            facts |= write(unfinished) or {}
            if unfinished.is_dir():
                shutil.rmtree(path, ignore_errors=True)
        facts |= {"sha256": _compute_digest(path), "origin": self.origin}
        write_json(path.with_suffix(".json"), facts)
        return facts

    def facts(self, name: str) -> Json | None:
        """Return the facts of a piece, read from its mark.

        None if the piece is missing, damaged or of another origin.
        """
        path = self.folder / name
        try:
            facts: Json = json.loads(path.with_suffix(".json").read_text())
            whole = facts["origin"] == self.origin and facts["sha256"] == _compute_digest(path)
        except (FileNotFoundError, ValueError, KeyError):
            return None
        return facts if whole else None


def _compute_digest(path: Path) -> str:
    """Return sha256 of a file, or of a folder's names and files."""
    if not path.is_dir():
        return sha256(path)
    lines = [f"{sha256(file)}  {file.relative_to(path)}\n" for file in files_in(path)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def split_spans(rows: int, size: int) -> list[range]:
    """Return the rows of each part; every part except the last has `size` rows."""
    return [range(first, min(first + size, rows)) for first in range(0, rows, size)]


class Parts:
    """Write files or folders numbered from 0: shard i of n writes the parts i, i + n, i + 2n, …

    The stage itself writes what is missing and joins all parts, so that no byte depends on the number of shards.
    """

    def __init__(self, job: Job[Any], suffix: str = "") -> None:
        part = KINDS[job.kind].part
        assert part is not None
        self.job, self.suffix, self.rows, self.unit = job, suffix, part.rows, part.unit
        files = {role: artifact.manifest.content for role, artifact in job.inputs.items()}
        self.pieces = Pieces(job.out / WORK_FOLDER, compute_origin(job, [files, part.rows]))

    def path(self, number: int) -> Path:
        """Return the file or folder of a part."""
        return self.pieces.folder / f"{number:05d}{self.suffix}"

    def spans(self, rows: int) -> list[range]:
        """Return the rows of each part."""
        return split_spans(rows, self.rows)

    def is_own(self, number: int) -> bool:
        """Return whether this job writes a part if it is missing: the stage any part, a shard every n-th."""
        shard, shards = self.job.execution.shard, self.job.execution.shards
        return shard is None or number % shards == shard

    def facts(self, number: int) -> Json | None:
        """Return the facts that `write` returned for a part.

        None if it is missing, damaged or made from other inputs.
        """
        return self.pieces.facts(self.path(number).name)

    def write(self, number: int, write: Callable[[Path], Json]) -> Json:
        """Call `write` with the path of a new part; return its facts."""
        return self.pieces.write(self.path(number).name, write)

    def complete(
        self, rows: int, write: Callable[[range, Progress, Path], Json]
    ) -> dict[int, Json]:
        """Return the facts of this job's parts by number, after `write` has written the missing ones.

        Args:
            rows: number of rows of all parts together.
            write: takes a part's rows, the progress, to which it adds rows, and a path; returns facts.
        """
        spans = self.spans(rows)
        own = [number for number in range(len(spans)) if self.is_own(number)]
        finished = {number: self.facts(number) for number in own}
        total = sum(len(spans[number]) for number in own)
        done = sum(len(spans[number]) for number in own if finished[number])
        facts: dict[int, Json] = {}
        with Progress(f"{self.job.kind} {self.job.key}", total, self.unit, done=done) as progress:
            for number in own:
                facts[number] = finished[number] or self.write(
                    number, partial(write, spans[number], progress)
                )
        return facts

    def remove(self) -> None:
        """Remove all parts, once they have been joined."""
        shutil.rmtree(self.pieces.folder, ignore_errors=True)
