"""The alphabetical order of a corpus' ids, on disk: ties between passages are broken by it.

A search asks for the rank of every passage's id and, at the end, for the ids of a few ranks; who shows or judges what
was found asks for the rows of a few ids. All is made once per dataset, in memory that does not grow with it, and
memory-mapped by all who search: 4 bytes a passage for the ranks, 4 for the rows by rank, and 8 and the id itself for
the ids. Ids compare by code point, as their UTF-8 bytes do.
"""

import fcntl
import json
import os
import shutil
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import methodcaller
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tandem.data.collection import CORPUS, Collection
from tandem.data.rows import Rows
from tandem.errors import UserError
from tandem.store.artifact import Artifact, check_files
from tandem.store.files import sha256, write_json

PART = 1 << 21  # ids that are sorted at once: 250 bytes each are held; as many files are open as there are parts
SAMPLED = 256  # ids that are looked at for each part
RANKS, ROWS, ENDS, IDS, TOLD = "ranks.npy", "rows.npy", "ends.npy", "ids.bin", "order.json"
FILES = (RANKS, ROWS, ENDS, IDS)
DEALT = pa.schema([("id", pa.large_string()), ("row", pa.uint32())])


class Order:
    """The order of a dataset's passages, memory-mapped; made where it is not there yet.

    It lies in `results/<dataset>/order/<dataset's key>/`. Of several processes that need it one makes it, and the
    others wait.

    Args:
        dataset: the artifact; its corpus is checked against the manifest, and read, only where the order is made.
    Attributes:
        ranks: rank of each row's id, shape (passages,).
    """

    def __init__(self, dataset: Artifact) -> None:
        folder = dataset.folder.parent.parent / "order" / dataset.key
        corpus = dataset.manifest.files[CORPUS].sha256
        if not _made(folder, corpus):
            with _alone(folder):
                if not _made(folder, corpus):
                    check_files(dataset, [CORPUS])
                    make(Collection(dataset), folder, corpus)
        self.where = dataset.folder
        self.ranks: NDArray[np.uint32] = np.load(folder / RANKS, mmap_mode="r", allow_pickle=False)
        self._rows: NDArray[np.uint32] = np.load(folder / ROWS, mmap_mode="r", allow_pickle=False)
        ends, text = np.load(folder / ENDS, mmap_mode="r", allow_pickle=False), np.memmap(folder / IDS, np.uint8, "r")
        self._ids = pa.LargeStringArray.from_buffers(len(self.ranks), pa.py_buffer(ends), pa.py_buffer(text))

    def ids(self, ranks: Rows) -> list[str]:
        """The id of each rank."""
        found: list[str] = self._ids.take(pa.array(ranks)).to_pylist()
        return found

    def rows(self, ids: Sequence[str], missing_ok: bool = False) -> Rows:
        """Row of each of a few ids, shape (ids,), by bisection; see `IdRows.rows`, which is faster for millions."""
        made = np.full(len(ids), -1, np.int64)
        for at, name in enumerate(ids):
            rank = bisect_left(self._ids, name, key=methodcaller("as_py"))
            if rank < len(self._ids) and self._ids[rank].as_py() == name:
                made[at] = self._rows[rank]
            elif not missing_ok:
                raise UserError(f"{self.where}: holds no passage {name}")
        return made


def make(collection: Collection, folder: Path, corpus: str, part: int = PART) -> None:
    """Write an order: ids are dealt out to files by splitters, and each file is sorted by itself.

    Args:
        collection: whose passages.
        folder: where it is to stand.
        corpus: sha256 of the corpus, by which it is known.
        part: ids that are sorted at once.
    """
    partial = folder.with_name(f".{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    dealt = _deal(collection, _splitters(collection, part), partial)
    ranks, by_rank = (
        np.lib.format.open_memmap(partial / name, "w+", np.uint32, (collection.passages,)) for name in (RANKS, ROWS)
    )
    ends = np.lib.format.open_memmap(partial / ENDS, "w+", np.int64, (collection.passages + 1,))
    first, end = 0, 0
    with open(partial / IDS, "wb") as file:
        for path in dealt:
            rows, bounds, text = _sorted(path)
            path.unlink()
            ranks[rows] = np.arange(first, first + len(rows), dtype=np.uint32)
            by_rank[first : first + len(rows)] = rows
            ends[first : first + len(rows) + 1] = bounds + end
            file.write(text)
            first, end = first + len(rows), end + len(text)
    for array in (ranks, by_rank, ends):
        array.flush()
    written = {name: {"bytes": (partial / name).stat().st_size} for name in FILES}
    files = {name: told | {"sha256": sha256(partial / name)} for name, told in written.items()}
    write_json(partial / TOLD, {"corpus": corpus, "files": files})
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)


def _splitters(collection: Collection, part: int) -> list[str]:
    """Ids between which about as many others stand as are sorted at once: of an even sample."""
    parts = -(-collection.passages // part)
    every, sample, seen = max(1, part // SAMPLED), list[str](), 0
    for batch in collection.batches(columns=("doc_id",)) if parts > 1 else ():
        sample += batch["doc_id"].take(pa.array(range(-seen % every, batch.num_rows, every), pa.int64())).to_pylist()
        seen += batch.num_rows
    sample.sort()
    return [sample[number * len(sample) // parts] for number in range(1, parts)]


def _deal(collection: Collection, splitters: Sequence[str], folder: Path) -> list[Path]:
    """Write ids with their rows to a file for each part; the paths, in order."""
    paths = [folder / f"{number}.arrow" for number in range(len(splitters) + 1)]
    row = 0
    with ExitStack() as stack:
        files = [stack.enter_context(pa.ipc.new_stream(path, DEALT)) for path in paths]
        for batch in collection.batches(columns=("doc_id",)):
            ids = batch["doc_id"].cast(pa.large_string())
            order = pc.sort_indices(ids)
            ordered, rows = ids.take(order), pc.add(order.cast(pa.uint32()), pa.scalar(row, pa.uint32()))
            inner = [bisect_left(ordered, splitter, key=methodcaller("as_py")) for splitter in splitters]
            cuts = [0, *inner, len(ordered)]
            for file, start, stop in zip(files, cuts, cuts[1:], strict=False):
                if stop > start:
                    file.write_batch(pa.record_batch([ordered[start:stop], rows[start:stop]], schema=DEALT))
            row += batch.num_rows
    return paths


def _sorted(path: Path) -> tuple[NDArray[np.uint32], NDArray[np.int64], bytes | memoryview]:
    """A part's rows in the order of their ids, where each id begins among their bytes (and the end), and the bytes."""
    with pa.ipc.open_stream(path) as stream:
        table = stream.read_all().combine_chunks()
    if not table.num_rows:
        return np.empty(0, np.uint32), np.zeros(1, np.int64), b""
    order = pc.sort_indices(table["id"])
    ids, rows = (table[name].take(order).combine_chunks() for name in DEALT.names)
    _, ends, text = ids.buffers()
    bounds = np.frombuffer(ends, np.int64)[: len(ids) + 1]
    return rows.to_numpy(), bounds, memoryview(text)[: bounds[-1]]


def _made(folder: Path, corpus: str) -> bool:
    """Whether an order of this corpus stands there, whole."""
    try:
        told = json.loads((folder / TOLD).read_text())
        whole = all(sha256(folder / name) == told["files"][name]["sha256"] for name in FILES)
        return bool(told["corpus"] == corpus and whole)
    except (FileNotFoundError, ValueError, KeyError):
        return False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time makes an order; the others wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
