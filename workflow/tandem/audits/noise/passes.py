"""Passes over a corpus, row group by row group, in several processes: the results come in row order."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
import pyarrow.parquet as pq

from tandem.audits.noise.hashing import Hashes
from tandem.audits.noise.minhash import Sketcher, pieces
from tandem.audits.noise.shingles import Shingling, normalised
from tandem.data.collection import contents
from tandem.data.rows import Rows
from tandem.data.tables import streaming

Task = TypeVar("Task")
Result = TypeVar("Result")


class Crew:
    """Processes that share out tasks; with one worker everything happens in this process.

    Example: `with Crew(4) as crew: results = crew.map(function, tasks)`
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        # Spawned, not forked: this process may hold threads of Arrow.
        self._pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn")) if workers > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Results in the order of the tasks, whatever the number of workers; few more tasks than these are open."""
        if self._pool is None:
            yield from map(function, tasks)
            return
        rest = iter(tasks)
        running = deque(self._pool.submit(function, task) for task in islice(rest, 2 * self.workers))
        while running:
            yield running.popleft().result()
            running.extend(self._pool.submit(function, task) for task in islice(rest, 1))


def group_ends(corpus: Path) -> list[int]:
    """The row after the last of each row group."""
    metadata = pq.read_metadata(corpus)
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return np.cumsum(sizes, dtype=np.int64).tolist()  # type: ignore[no-any-return]


def read_group(corpus: Path, group: int) -> list[str]:
    """Normalised contents (title and text) of the passages of a row group; empty where a passage has none."""
    with streaming(corpus) as file:
        table = file.read_row_group(group, columns=["title", "text"])
    rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
    return [normalised(contents(title, text)) for title, text in rows]


def sketch(task: tuple[Path, int, Sketcher]) -> tuple[Hashes, Hashes]:
    """The hash of each passage of a row group, 0 of an empty one, and its band keys.

    Returns:
        Shapes (passages,) and (bands, passages); the keys of empty passages are 0.
    """
    corpus, group, sketcher = task
    texts = read_group(corpus, group)
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    full = np.asarray([text != "" for text in texts], bool)
    hashes = np.frombuffer(digests, "<u8") * full
    keys = np.zeros((sketcher.bands[0], len(texts)), np.uint64)
    keys[:, full] = sketcher.keys([text for text in texts if text])
    return hashes, keys


def shingle_sets(task: tuple[Path, int, Rows, Shingling]) -> tuple[Hashes, Rows]:
    """The distinct shingles of some passages of a row group.

    Args:
        task: the corpus, the row group, rows within it, and how texts are cut.
    Returns:
        Sorted hashes, passage after passage, and the number of each passage's.
    """
    corpus, group, rows, shingling = task
    texts = read_group(corpus, group)
    sets: list[Hashes] = []
    for part in pieces([texts[row] for row in rows.tolist()]):
        hashes, counts = shingling.hashes(part)
        sets += [np.unique(some) for some in np.split(hashes, np.cumsum(counts)[:-1])]
    return np.concatenate(sets), np.asarray([len(one) for one in sets], np.int64)
