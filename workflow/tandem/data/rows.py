"""Translate ids to rows and back: token ids, embeddings and pair scores are all addressed by row, not by id.

`IdRows` looks ids up in memory. `PassageOrder` is the alphabetical order of a corpus' ids on disk, which breaks ties
between passages: a search needs the rank of every passage's id and, at the end, the ids of a few ranks. It is computed
once per dataset, in memory that does not grow with it, and memory-mapped by every search: 4 bytes a passage for the
ranks, 4 for the rows by rank, and 8 and the id itself for the ids. Ids compare by code point, as their UTF-8 bytes do.
"""

import json
import os
import shutil
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tandem.data.collection import CORPUS, QUERIES, Collection
from tandem.errors import UserError
from tandem.store.artifact import Artifact, check_files
from tandem.store.files import locked, sha256, write_json

Rows = np.ndarray[Any, np.dtype[np.int64]]
IdHashes = np.ndarray[Any, np.dtype[np.uint64]]

# Any odd number hashes; the next one is tried where two ids of a corpus collide.
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_IDS_PER_SLICE = 1 << 20


def hash_ids(ids: pa.Array, multiplier: int) -> IdHashes:
    """Return a 64-bit polynomial hash of each string's UTF-8 bytes, to an odd base, modulo 2^64: shape (ids,)."""
    hashes = np.empty(len(ids), np.uint64)
    base = np.uint64(multiplier)
    for start in range(0, len(ids), _IDS_PER_SLICE):
        part = ids.slice(start, _IDS_PER_SLICE).cast(pa.large_binary())
        _, ends, text = part.buffers()
        offsets = np.frombuffer(ends, np.int64)[part.offset : part.offset + len(part) + 1]
        data = np.frombuffer(text, np.uint8) if text else np.empty(0, np.uint8)
        lengths = np.diff(offsets)
        values = lengths.astype(np.uint64)
        active = np.arange(len(part))
        for at in range(int(lengths.max(initial=0))):
            active = active[lengths[active] > at]
            values[active] = values[active] * base + data[offsets[active] + at]
        hashes[start : start + len(part)] = values
    return hashes


class IdRows:
    """Find the rows of ids by a sorted array of hashes, in about 28 bytes an id; every hit is compared in full.

    `what` the ids name and `where` they come from are for messages. An id that occurs twice is a `UserError`.
    """

    def __init__(self, ids: pa.ChunkedArray, what: str, where: object) -> None:
        self.what = what
        self.where = where
        self.all: pa.Array = ids.cast(pa.large_string()).combine_chunks()
        for self.multiplier in MULTIPLIERS:
            hashes = hash_ids(self.all, self.multiplier)
            order = np.argsort(hashes, kind="stable")
            self._hashes = hashes[order]
            self._rows = order.astype(np.uint32)
            if not np.any(self._hashes[1:] == self._hashes[:-1]):
                return
        ordered = self.all.take(pc.sort_indices(self.all)).to_pylist()
        repeated = next(a for a, b in pairwise(ordered) if a == b)
        raise UserError(f"{where}: {what} id {repeated} stands twice; ids are unique")

    def __len__(self) -> int:
        return len(self.all)

    def rows(self, ids: Sequence[str], missing_ok: bool = False) -> Rows:
        """Return the row of each id, shape (ids,); an unknown id is -1 with `missing_ok`, else a `UserError`."""
        queries = pa.array(ids, pa.large_string())
        known = np.zeros(len(queries), bool)
        rows = np.zeros(len(queries), np.int64)
        if len(self):
            hashes = hash_ids(queries, self.multiplier)
            # A hash above all others would be looked up behind the end.
            places = np.searchsorted(self._hashes, hashes).clip(max=len(self) - 1)
            rows = self._rows[places].astype(np.int64)
            known = np.asarray(pc.equal(self.all.take(pa.array(rows)), queries))
        if missing_ok:
            rows[~known] = -1
        elif not known.all():
            first = queries[int(np.argmin(known))]
            number = int((~known).sum())
            raise UserError(
                f"{self.where}: holds no {self.what} {first} ({number:,} of {len(queries):,} ids unknown)"
            )
        return rows

    def ids(self, rows: Rows) -> list[str]:
        """Return the id of each row."""
        ids: list[str] = self.all.take(pa.array(rows)).to_pylist()
        return ids


def index_passages(collection: Collection) -> IdRows:
    """Index a collection's passages by id: `corpus.parquet`, passage tokens and passage embeddings share these rows."""
    return IdRows(collection.doc_ids(), "passage", collection.artifact.folder)


def index_queries(collection: Collection) -> IdRows:
    """Index a collection's queries, of all splits, by id: `queries.parquet` and query tokens share these rows."""
    table = pq.read_table(collection.artifact.path(QUERIES), columns=["query_id"])
    return IdRows(table["query_id"], "query", collection.artifact.folder)


def split_rows(collection: Collection, split: str) -> Rows:
    """Return rows of a split's queries, in file order; a `UserError` if the split has none."""
    splits = pq.read_table(collection.artifact.path(QUERIES), columns=["split"])["split"]
    rows = np.flatnonzero(np.asarray(pc.equal(splits, split))).astype(np.int64)
    if not len(rows):
        have = ", ".join(sorted(splits.unique().to_pylist()))
        raise UserError(
            f"{collection.artifact.folder}: has no queries of the split {split}; it has {have or 'none'}"
        )
    return rows


# ids that are sorted at once, in 250 bytes of memory each; as many files are open as there are parts
IDS_PER_PART = 1 << 21
_SAMPLED_PER_PART = 256  # ids that are looked at for each part
RANKS_FILE = "ranks.npy"
ROWS_FILE = "rows.npy"
ENDS_FILE = "ends.npy"
IDS_FILE = "ids.bin"
META_FILE = "order.json"
_ORDER_FILES = (RANKS_FILE, ROWS_FILE, ENDS_FILE, IDS_FILE)
_PART_SCHEMA = pa.schema([("id", pa.large_string()), ("row", pa.uint32())])


class PassageOrder:
    """Map the order of a dataset's passages into memory; compute it first if it does not exist.

    Its folder is `results/<dataset>/order/<dataset's key>/`. If several processes need it, one computes it, after
    checking the corpus against the manifest, and the others wait. `ranks` holds the rank of each row's id, `by_rank`
    the row of each rank's id, shape (passages,).
    """

    def __init__(self, dataset: Artifact) -> None:
        folder = dataset.folder.parent.parent / "order" / dataset.key
        corpus = dataset.manifest.files[CORPUS].sha256
        if not _is_whole(folder, corpus):
            with locked(folder.with_name(f".{folder.name}.lock")):
                if not _is_whole(folder, corpus):
                    check_files(dataset, [CORPUS])
                    write_order(Collection(dataset), folder, corpus)
        self.where = dataset.folder
        self.ranks: NDArray[np.uint32] = np.load(
            folder / RANKS_FILE, mmap_mode="r", allow_pickle=False
        )
        self.by_rank: NDArray[np.uint32] = np.load(
            folder / ROWS_FILE, mmap_mode="r", allow_pickle=False
        )
        ends = np.load(folder / ENDS_FILE, mmap_mode="r", allow_pickle=False)
        text = np.memmap(folder / IDS_FILE, np.uint8, "r")
        self._ids = pa.LargeStringArray.from_buffers(
            len(self.ranks), pa.py_buffer(ends), pa.py_buffer(text)
        )

    def ids(self, ranks: Rows) -> list[str]:
        """Return the id of each rank."""
        ids: list[str] = self._ids.take(pa.array(ranks)).to_pylist()
        return ids

    def at(self, rows: Rows) -> pa.Array:
        """Return the id of each row."""
        return self._ids.take(pa.array(self.ranks[rows]))

    def rows(self, ids: Sequence[str], missing_ok: bool = False) -> Rows:
        """Return the row of each of a few ids, shape (ids,), by bisection.

        `IdRows.rows` is faster for millions.
        """
        rows = np.full(len(ids), -1, np.int64)
        for at, name in enumerate(ids):
            rank = bisect_left(self._ids, name, key=methodcaller("as_py"))
            if rank < len(self._ids) and self._ids[rank].as_py() == name:
                rows[at] = self.by_rank[rank]
            elif not missing_ok:
                raise UserError(f"{self.where}: holds no passage {name}")
        return rows


def write_order(
    collection: Collection, folder: Path, corpus: str, part: int = IDS_PER_PART
) -> None:
    """Write an order: distribute ids over files of about `part` ids by splitters, then sort each file by itself.

    `corpus` is the sha256 of the corpus, which identifies it.
    """
    partial = folder.with_name(f".{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    paths = _write_parts(collection, _choose_splitters(collection, part), partial)

    count = collection.passages
    ranks = np.lib.format.open_memmap(partial / RANKS_FILE, "w+", np.uint32, (count,))
    by_rank = np.lib.format.open_memmap(partial / ROWS_FILE, "w+", np.uint32, (count,))
    ends = np.lib.format.open_memmap(partial / ENDS_FILE, "w+", np.int64, (count + 1,))
    first = 0  # rank of the part's first id
    end = 0  # bytes of the ids before it
    with open(partial / IDS_FILE, "wb") as file:
        for path in paths:
            rows, bounds, text = _sort_part(path)
            path.unlink()
            stop = first + len(rows)
            ranks[rows] = np.arange(first, stop, dtype=np.uint32)
            by_rank[first:stop] = rows
            ends[first : stop + 1] = bounds + end
            file.write(text)
            first = stop
            end += len(text)
    for array in (ranks, by_rank, ends):
        array.flush()

    files = {}
    for name in _ORDER_FILES:
        path = partial / name
        files[name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    write_json(partial / META_FILE, {"corpus": corpus, "files": files})
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)


def _choose_splitters(collection: Collection, part: int) -> list[str]:
    """Choose splitters from an even sample of ids; between two of them are about as many ids as are sorted at once."""
    parts = -(-collection.passages // part)  # rounded up
    if parts <= 1:
        return []
    every = max(1, part // _SAMPLED_PER_PART)
    sample: list[str] = []
    seen = 0
    for batch in collection.batches(columns=("doc_id",)):
        # The first row of the batch whose number among all rows is a multiple of `every`.
        first = -seen % every
        rows = pa.array(range(first, batch.num_rows, every), pa.int64())
        sample += batch["doc_id"].take(rows).to_pylist()
        seen += batch.num_rows
    sample.sort()
    return [sample[number * len(sample) // parts] for number in range(1, parts)]


def _write_parts(collection: Collection, splitters: Sequence[str], folder: Path) -> list[Path]:
    """Write ids with their rows to a file for each part; return the paths, in order."""
    paths = [folder / f"{number}.arrow" for number in range(len(splitters) + 1)]
    row = 0
    with ExitStack() as stack:
        files = [stack.enter_context(pa.ipc.new_stream(path, _PART_SCHEMA)) for path in paths]
        for batch in collection.batches(columns=("doc_id",)):
            ids = batch["doc_id"].cast(pa.large_string())
            order = pc.sort_indices(ids)
            ordered = ids.take(order)
            rows = pc.add(order.cast(pa.uint32()), pa.scalar(row, pa.uint32()))

            # A part's ids are adjacent in the sorted batch: from its splitter to the next one's.
            cuts = [
                bisect_left(ordered, splitter, key=methodcaller("as_py")) for splitter in splitters
            ]
            for file, (start, stop) in zip(files, pairwise([0, *cuts, len(ordered)]), strict=True):
                if stop > start:
                    columns = [ordered[start:stop], rows[start:stop]]
                    file.write_batch(pa.record_batch(columns, schema=_PART_SCHEMA))
            row += batch.num_rows
    return paths


def _sort_part(path: Path) -> tuple[NDArray[np.uint32], NDArray[np.int64], bytes | memoryview]:
    """Return a part's rows in the order of their ids, the bounds of each id in the ids' bytes, and these bytes."""
    with pa.ipc.open_stream(path) as stream:
        table = stream.read_all().combine_chunks()
    if not table.num_rows:
        return np.empty(0, np.uint32), np.zeros(1, np.int64), b""
    order = pc.sort_indices(table["id"])
    ids, rows = (table[name].take(order).combine_chunks() for name in _PART_SCHEMA.names)
    _, ends, text = ids.buffers()
    bounds = np.frombuffer(ends, np.int64)[: len(ids) + 1]
    return rows.to_numpy(), bounds, memoryview(text)[: bounds[-1]]


def _is_whole(folder: Path, corpus: str) -> bool:
    try:
        metadata = json.loads((folder / META_FILE).read_text())
        if metadata["corpus"] != corpus:
            return False
        return all(
            sha256(folder / name) == metadata["files"][name]["sha256"] for name in _ORDER_FILES
        )
    except (FileNotFoundError, ValueError, KeyError):
        return False
