"""Vectors on disk, in blocks of a fixed number of rows: how the work was split shows in no byte.

Blocks are fp32, fp16, or int8 with a scale for each vector: s = max_i |x_i| / 127, rounded up to 16 significant bits,
and q_i = round(x_i / s). s · q_i is exact in float32, so no score depends on who multiplies. Of zeros, s = 0.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.cluster.work import Pieces
from tandem.errors import UserError
from tandem.retrieval.exact import Array
from tandem.stages.base import Json
from tandem.store.artifact import Artifact

FloatVectors = np.ndarray[Any, np.dtype[np.floating[Any]]]
StoredRows = list[Array]  # rows as they are stored, memory-mapped

FP32, FP16, INT8 = "fp32", "fp16", "int8"
_STORED_TYPES = {FP32: "<f4", FP16: "<f2"}
_ROWS_READ_SINGLY = 64  # rows of a block that are read one by one sooner than its file is mapped
_LARGEST_INT8 = 127
_SCALE_BITS = 16  # of a scale
ROWS_PER_BLOCK = 1024  # rows that are quantised at once: float64 is wide
_ALIGNMENT = 64  # lengths that engines like
SAMPLE, PROBES, NEAREST = 1024, 64, 10  # of a block's rows, on which the loss by int8 is measured
LEAST_KEPT = 0.9  # of the nearest neighbours; less is worth a warning


def row_type(dimension: int, dtype: str = INT8) -> np.dtype[Any]:
    """The type of a vector in a file: its values; for int8 a float32 scale, directly followed by the values."""
    if dtype in _STORED_TYPES:
        return np.dtype((_STORED_TYPES[dtype], (dimension,)))
    return np.dtype([("scale", "<f4"), ("values", "i1", (dimension,))])


def quantise(vectors: FloatVectors) -> Array:
    """Finite vectors, shape (rows, dim), as rows of `row_type`, shape (rows,)."""
    rows = np.zeros(len(vectors), row_type(vectors.shape[1]))
    for at in (slice(start, start + ROWS_PER_BLOCK) for start in range(0, len(vectors), ROWS_PER_BLOCK)):
        wide = vectors[at].astype(np.float64)
        fraction, exponent = np.frexp(np.abs(wide).max(axis=1, initial=0.0) / _LARGEST_INT8)
        scale = np.ldexp(np.ceil(np.ldexp(fraction, _SCALE_BITS)), exponent - _SCALE_BITS)[:, None]
        np.divide(wide, scale, out=wide, where=scale > 0)
        rows["values"][at] = np.rint(wide)
        rows["scale"][at] = scale[:, 0]
    return rows


def restore(stored: Array) -> FloatVectors:
    """The vectors that rows of `row_type` stand for, shape (rows, dim): as they are, or float32 of int8."""
    if stored.dtype.names is None:
        return stored
    vectors: FloatVectors = stored["values"].astype(np.float32)
    vectors *= stored["scale"][:, None]
    return vectors


def kept_neighbours(vectors: FloatVectors, stored: Array) -> float | None:
    """The share of nearest neighbours that int8 keeps; None of too few vectors.

    Of the first `PROBES` vectors, the `NEAREST` others of the first `SAMPLE` by the dot product, before and after: one
    number that is much larger than the rest takes the scale from all others. Sums are in one order, whatever the
    threads. `stored` is what `quantise` made of the vectors, shape (rows,) and (rows, dim).
    """
    if len(vectors) <= 2 * NEAREST:
        return None
    sides = [part[:SAMPLE].astype(np.float64) for part in (vectors, restore(stored[:SAMPLE]))]
    scores = [np.einsum("qd,pd->qp", sides[0][:PROBES], side) for side in sides]
    for side in scores:
        np.fill_diagonal(side, -np.inf)
    exact, rounded = (np.argsort(-side, axis=1, kind="stable")[:, :NEAREST] for side in scores)
    return float((exact[:, :, None] == rounded[:, None]).any(axis=2).mean())


def block_name(number: int, suffix: str = ".npy") -> str:
    """The block's file, relative to the artifact."""
    return f"blocks/{number:05d}{suffix}"


class Blocks:
    """The blocks of embeddings that are being computed: `size` rows each, the last may have fewer."""

    suffix = ".npy"

    def __init__(self, folder: Path, rows: int, size: int, origin: str, dtype: str) -> None:
        self.folder, self.rows, self.size, self.dtype = folder, rows, size, dtype
        self.pieces = Pieces(folder, origin)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def span(self, number: int) -> slice:
        """The rows of a block."""
        return slice(number * self.size, min((number + 1) * self.size, self.rows))

    def name(self, number: int) -> str:
        """The block's file, relative to the artifact."""
        return block_name(number, self.suffix)

    def path(self, number: int) -> Path:
        """The file of a block."""
        return self.folder / self.name(number)

    def finished(self, numbers: Iterable[int], label: str, workers: int) -> dict[int, Json]:
        """The facts of those blocks that are finished, by number; every byte is read, as no size tells of damage."""
        present = [number for number in numbers if self.path(number).with_suffix(".json").exists()]
        finished = {}
        with (
            Progress(f"check {label}", len(present), "blocks", quiet=not present) as progress,
            ThreadPoolExecutor(workers) as threads,
        ):
            for number, facts in zip(present, threads.map(self.pieces.facts, map(self.name, present)), strict=True):
                if facts is not None:
                    finished[number] = facts
                progress.add(1)
        return finished

    def write(self, number: int, vectors: FloatVectors, computed: dict[str, str]) -> Json:
        """Write a block of vectors, shape (rows, dim), with facts: `computed` (model, precision, device) and more."""
        stored = quantise(vectors) if self.dtype == INT8 else vectors
        facts: dict[str, object] = {"rows": len(vectors), "dtype": self.dtype, **computed}
        if self.dtype == INT8:
            facts["kept"] = kept_neighbours(vectors, stored)

        def save(path: Path) -> None:
            with open(path, "wb") as file:
                np.save(file, np.ascontiguousarray(stored))  # which `Embeddings.stored` relies on

        return self.pieces.write(self.name(number), save, **facts)

    def tidy(self) -> None:
        """Remove files that killed processes left half written; to be called when nobody writes."""
        for partial in self.folder.glob("blocks/.*"):
            partial.unlink()


class Embeddings:
    """A finished `embeddings` artifact: `rows` vectors of `dimension`, in memory-mapped blocks of `size`.

    Readers get vectors: fp32 or fp16 as stored, or float32, exactly what int8 and its scale stand for.
    """

    def __init__(self, artifact: Artifact, side: str) -> None:
        if artifact.params["side"] != side:
            raise UserError(f"{artifact.folder}: holds embeddings of {artifact.params['side']}; expected {side}")
        self.artifact = artifact
        meta = json.loads(artifact.path("meta.json").read_text())
        self.rows: int = meta["rows"]
        self.dimension: int = meta["dimension"]
        self.size: int = meta["block"]
        self.dtype: str = meta["dtype"]
        self.temperature: float = meta["temperature"]
        self.kind = row_type(self.dimension, self.dtype)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    @property
    def row_bytes(self) -> int:
        """The bytes of a vector in memory: as it is stored, in float32 and in float64, together."""
        return 16 * self.dimension

    @cached_property
    def paths(self) -> list[str]:
        """The file of each block."""
        return [str(self.artifact.path(block_name(number))) for number in range(len(self))]

    def stored(self, number: int) -> Array:
        """A block as stored, memory-mapped: fp32 or fp16, shape (rows, dim), or rows of `row_type`.

        `np.load` would parse the file's header, which takes ten times as long.
        """
        with open(self.paths[number], "rb") as file:
            data = mmap(file.fileno(), 0, access=ACCESS_READ)
        rows = self._rows(number)
        return np.frombuffer(data, self.kind, rows, len(data) - rows * self.kind.itemsize)

    def block(self, number: int, rows: slice | Array = slice(None)) -> FloatVectors:
        """The vectors of a block, or of some of its rows."""
        return restore(self.stored(number)[rows])

    def blocks(self) -> Iterator[tuple[int, FloatVectors]]:
        """(first row, vectors) of each block, in order."""
        for number in range(len(self)):
            yield number * self.size, self.block(number)

    def take(self, start: int, stop: int) -> Any:
        """The vectors of the rows from start to stop, in memory."""
        firsts = range(start // self.size * self.size, min(stop, self.rows), self.size)
        parts = [self.block(first // self.size, slice(max(start - first, 0), stop - first)) for first in firsts]
        return self._join(parts)

    def query_ids(self) -> list[str]:
        """The query of each row."""
        ids: list[str] = pq.read_table(self.artifact.path("ids.parquet"))["query_id"].to_pylist()
        return ids

    def at(self, rows: Array | Sequence[int]) -> FloatVectors:
        """The vectors of a few rows in any order, in memory."""
        rows = np.asarray(rows, np.int64)
        if (np.diff(rows) < 0).any():
            order = np.argsort(rows, kind="stable")
            return self.at(rows[order])[np.argsort(order)]
        edges = np.flatnonzero(np.diff(rows // self.size)) + 1
        parts = [self._few(int(at[0]) // self.size, at % self.size) for at in np.split(rows, edges) if len(at)]
        vectors: FloatVectors = self._join(parts)
        return vectors

    def _join(self, parts: list[Any]) -> Any:
        """Vectors one after the other, maybe none."""
        return np.concatenate([np.empty((0, self.dimension), np.float16), *parts])

    def _few(self, number: int, rows: Array) -> FloatVectors:
        """The vectors of ascending rows of a block. So few that mapping the block takes longer are read one by one."""
        if len(rows) > _ROWS_READ_SINGLY:
            return self.block(number, rows)
        width = self.kind.itemsize
        with open(self.paths[number], "rb", buffering=0) as file:
            first = os.fstat(file.fileno()).st_size - self._rows(number) * width
            read = [os.pread(file.fileno(), width, first + row * width) for row in rows.tolist()]
        return restore(np.frombuffer(b"".join(read), self.kind, len(rows)))

    def _rows(self, number: int) -> int:
        return min(self.size, self.rows - number * self.size)


class Stretches:
    """Some blocks of passages' vectors, read in order and any number of times, as many rows at once as memory allows.

    `ranks` are the alphabetical ranks of all passages' ids; `progress` counts passages that were read.
    """

    def __init__(self, embeddings: Embeddings, numbers: Sequence[int], ranks: Array, progress: Progress) -> None:
        self.embeddings, self.numbers, self.ranks, self.progress = embeddings, numbers, ranks, progress
        self.dimension, self.temperature, size = embeddings.dimension, embeddings.temperature, embeddings.size
        self.bounds = np.cumsum([0, *(min(size, embeddings.rows - number * size) for number in numbers)])
        self.rows = int(self.bounds[-1])

    def read(self, rows: int) -> Iterator[tuple[StoredRows, Array]]:
        """Stretches of at most `rows` rows and of about equal length: their stored rows, and their ranks.

        Blocks are cut and joined as needed: an engine wastes less on few long stretches.
        """
        most = -(-self.rows // -(-self.rows // max(1, rows)))
        most = max(1, min(rows, -(-most // _ALIGNMENT) * _ALIGNMENT))
        size = self.embeddings.size
        for first in range(0, self.rows, most):
            stop, pieces, ranks = min(first + most, self.rows), StoredRows(), list[Array]()
            for at in range(np.searchsorted(self.bounds, first, "right") - 1, np.searchsorted(self.bounds, stop)):
                number, span = self.numbers[at], slice(max(first - self.bounds[at], 0), stop - self.bounds[at])
                pieces.append(self.embeddings.stored(number)[span])
                ranks.append(self.ranks[number * size : (number + 1) * size][span])
            yield pieces, np.concatenate(ranks)
            self.progress.add(stop - first)

    def join(self, pieces: StoredRows) -> FloatVectors:
        """The vectors of a stretch, float32, shape (rows, dim)."""
        vectors = np.empty((sum(map(len, pieces)), self.dimension), np.float32)
        start = 0
        for piece in pieces:
            vectors[start : start + len(piece)] = restore(piece)
            start += len(piece)
        return vectors
