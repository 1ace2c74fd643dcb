"""Write and read vectors in blocks of a fixed number of rows; no byte depends on how the work was split.

Blocks are fp32, fp16, or int8 with a scale for each vector: s = max_i |x_i| / 127, rounded up to 16 significant bits,
and q_i = round(x_i / s). s · q_i is exact in float32, so that every way to multiply gives the same score. A vector of
zeros has s = 0.
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
from tandem.models.ragged import round_up
from tandem.retrieval.exact import Array
from tandem.stages.base import Json
from tandem.store.artifact import Artifact
from tandem.store.job import load

FloatVectors = np.ndarray[Any, np.dtype[np.floating[Any]]]
StoredRows = list[Array]  # rows as they are stored, memory-mapped

FP32 = "fp32"
FP16 = "fp16"
INT8 = "int8"
_STORED_TYPES = {FP32: "<f4", FP16: "<f2"}
_ROWS_READ_SINGLY = (
    64  # up to so many rows of a block are read one by one, which is faster than to map its file
)
_LARGEST_INT8 = 127
_SCALE_BITS = 16  # significant bits of a scale
ROWS_PER_BLOCK = 1024  # rows that are quantised at once, to bound the memory of float64
_ALIGNMENT = 64  # the rows of a stretch are a multiple of this, which engines compute fastest
NEAREST = 10  # neighbours of a vector, by which the loss by int8 is measured
LEAST_KEPT = 0.9  # a warning reports if int8 keeps a smaller share of the nearest neighbours


def make_row_type(dimension: int, dtype: str = INT8) -> np.dtype[Any]:
    """Return the type of a vector in a file: its values; for int8 a float32 scale, directly followed by the values."""
    if dtype in _STORED_TYPES:
        return np.dtype((_STORED_TYPES[dtype], (dimension,)))
    return np.dtype([("scale", "<f4"), ("values", "i1", (dimension,))])


def quantise(vectors: FloatVectors) -> Array:
    """Return finite vectors, shape (rows, dim), as rows of `make_row_type`, shape (rows,)."""
    rows = np.zeros(len(vectors), make_row_type(vectors.shape[1]))
    for start in range(0, len(vectors), ROWS_PER_BLOCK):
        block = slice(start, start + ROWS_PER_BLOCK)
        wide = vectors[block].astype(np.float64)

        # max / 127 as fraction · 2^exponent, the fraction rounded up to so many bits.
        fraction, exponent = np.frexp(np.abs(wide).max(axis=1, initial=0.0) / _LARGEST_INT8)
        rounded_up = np.ceil(np.ldexp(fraction, _SCALE_BITS))
        scale = np.ldexp(rounded_up, exponent - _SCALE_BITS)[:, None]

        np.divide(wide, scale, out=wide, where=scale > 0)
        rows["values"][block] = np.rint(wide)
        rows["scale"][block] = scale[:, 0]
    return rows


def restore(stored: Array) -> FloatVectors:
    """Return stored rows (`make_row_type`) as vectors, shape (rows, dim): int8 as float32, others as they are."""
    if stored.dtype.names is None:
        return stored
    vectors: FloatVectors = stored["values"].astype(np.float32)
    vectors *= stored["scale"][:, None]
    return vectors


def name_block(number: int, suffix: str = ".npy") -> str:
    """Return the file of a block, relative to the artifact."""
    return f"blocks/{number:05d}{suffix}"


class Blocks:
    """Write the blocks of embeddings that are being computed: `size` rows each, the last one may have fewer."""

    suffix = ".npy"

    def __init__(self, folder: Path, rows: int, size: int, origin: str, dtype: str) -> None:
        self.folder = folder
        self.rows = rows
        self.size = size
        self.dtype = dtype
        self.pieces = Pieces(folder, origin)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def locate(self, number: int) -> slice:
        """Return the rows of a block."""
        return slice(number * self.size, min((number + 1) * self.size, self.rows))

    def name(self, number: int) -> str:
        """Return the block's file, relative to the artifact."""
        return name_block(number, self.suffix)

    def locate_file(self, number: int) -> Path:
        """Return the file of a block."""
        return self.folder / self.name(number)

    def check_finished(self, numbers: Iterable[int], label: str, workers: int) -> dict[int, Json]:
        """Return the facts of the finished blocks among `numbers`; every byte of them is read to find damage."""
        present = [
            number for number in numbers if self.locate_file(number).with_suffix(".json").exists()
        ]
        finished = {}
        with (
            Progress(f"check {label}", len(present), "blocks", quiet=not present) as progress,
            ThreadPoolExecutor(workers) as threads,
        ):
            all_facts = threads.map(self.pieces.facts, map(self.name, present))
            for number, facts in zip(present, all_facts, strict=True):
                if facts is not None:
                    finished[number] = facts
                progress.add(1)
        return finished

    def write(self, number: int, vectors: FloatVectors, computed: dict[str, str]) -> Json:
        """Write a block of vectors, shape (rows, dim), with facts: `computed` (model, precision, device) and more."""
        stored = quantise(vectors) if self.dtype == INT8 else vectors
        facts: dict[str, object] = {"rows": len(vectors), "dtype": self.dtype, **computed}
        if self.dtype == INT8:
            facts["kept"] = load("extras.kept_neighbours:measure_kept_neighbours")(vectors, stored)

        def save(path: Path) -> None:
            with open(path, "wb") as file:
                # `Embeddings.read_stored` relies on contiguous rows
                np.save(file, np.ascontiguousarray(stored))

        return self.pieces.write(self.name(number), save, **facts)

    def summarise(self, facts: Iterable[Json]) -> Json:
        """Return facts about the whole artifact from the facts of all blocks; here there are none."""
        return {}

    def remove_partial(self) -> None:
        """Remove files that killed processes left unfinished; no process may be writing."""
        for partial in self.folder.glob("blocks/.*"):
            partial.unlink()


class Embeddings:
    """Open a finished `embeddings` artifact: `rows` vectors of `dimension`, in memory-mapped blocks of `size`.

    Readers get vectors: fp32 or fp16 as stored, or float32 for int8, which is exact.
    """

    def __init__(self, artifact: Artifact, side: str) -> None:
        if artifact.params["side"] != side:
            raise UserError(
                f"{artifact.folder}: holds embeddings of {artifact.params['side']}; expected {side}"
            )
        self.artifact = artifact
        meta = json.loads(artifact.path("meta.json").read_text())
        self.rows: int = meta["rows"]
        self.dimension: int = meta["dimension"]
        self.size: int = meta["block"]
        self.dtype: str = meta["dtype"]
        self.temperature: float = meta["temperature"]
        self.kind = make_row_type(self.dimension, self.dtype)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    @property
    def row_bytes(self) -> int:
        """Return the most bytes that a vector takes in three copies: as stored, in float32 and in float64."""
        return 16 * self.dimension

    @cached_property
    def paths(self) -> list[str]:
        """Return the file of each block."""
        return [str(self.artifact.path(name_block(number))) for number in range(len(self))]

    def read_stored(self, number: int) -> Array:
        """Return a block as stored, memory-mapped: fp32 or fp16, shape (rows, dim), or rows of `make_row_type`.

        `np.load` would parse the file's header, which takes ten times as long.
        """
        with open(self.paths[number], "rb") as file:
            data = mmap(file.fileno(), 0, access=ACCESS_READ)
        rows = self._count_rows(number)
        return np.frombuffer(data, self.kind, rows, len(data) - rows * self.kind.itemsize)

    def read_block(self, number: int, rows: slice | Array = slice(None)) -> FloatVectors:
        """Return the vectors of a block, or of some of its rows."""
        return restore(self.read_stored(number)[rows])

    def iterate_blocks(self) -> Iterator[tuple[int, FloatVectors]]:
        """Yield (first row, vectors) of each block, in order."""
        for number in range(len(self)):
            yield number * self.size, self.read_block(number)

    def take(self, start: int, stop: int) -> Any:
        """Return the vectors of the rows from start to stop, in memory."""
        stop = min(stop, self.rows)
        parts = []
        for first in range(start // self.size * self.size, stop, self.size):
            within = slice(max(start - first, 0), stop - first)
            parts.append(self.read_block(first // self.size, within))
        return self._join(parts)

    def read_query_ids(self) -> list[str]:
        """Return the query of each row."""
        ids: list[str] = pq.read_table(self.artifact.path("ids.parquet"))["query_id"].to_pylist()
        return ids

    def pick(self, rows: Array | Sequence[int]) -> FloatVectors:
        """Return the vectors of a few rows in any order, in memory."""
        rows = np.asarray(rows, np.int64)
        if (np.diff(rows) < 0).any():
            order = np.argsort(rows, kind="stable")
            return self.pick(rows[order])[np.argsort(order)]
        is_next_block = np.diff(rows // self.size)
        edges = np.flatnonzero(is_next_block) + 1
        parts = []
        for rows_of_block in np.split(rows, edges):
            if len(rows_of_block):
                number = int(rows_of_block[0]) // self.size
                parts.append(self._read_few(number, rows_of_block % self.size))
        vectors: FloatVectors = self._join(parts)
        return vectors

    def _join(self, parts: list[Any]) -> Any:
        """Concatenate vectors; there may be none."""
        return np.concatenate([np.empty((0, self.dimension), np.float16), *parts])

    def _read_few(self, number: int, rows: Array) -> FloatVectors:
        """Return the vectors of ascending rows of a block; a few are read one by one, which is faster than mapping."""
        if len(rows) > _ROWS_READ_SINGLY:
            return self.read_block(number, rows)
        width = self.kind.itemsize
        with open(self.paths[number], "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            first = size - self._count_rows(number) * width  # where the header ends
            read = [os.pread(file.fileno(), width, first + row * width) for row in rows.tolist()]
        return restore(np.frombuffer(b"".join(read), self.kind, len(rows)))

    def _count_rows(self, number: int) -> int:
        return min(self.size, self.rows - number * self.size)


class Stretches:
    """Read some blocks of passages' vectors in order, any number of times, in stretches that fit into memory.

    Args:
        numbers: the blocks to read.
        ranks: alphabetical ranks of all passages' ids.
        progress: counts the passages that were read.
    """

    def __init__(
        self, embeddings: Embeddings, numbers: Sequence[int], ranks: Array, progress: Progress
    ) -> None:
        self.embeddings = embeddings
        self.numbers = numbers
        self.ranks = ranks
        self.progress = progress
        self.dimension = embeddings.dimension
        self.temperature = embeddings.temperature
        size = embeddings.size
        lengths = [min(size, embeddings.rows - number * size) for number in numbers]
        self.bounds = np.cumsum([0, *lengths])
        self.rows = int(self.bounds[-1])

    def read(self, rows: int) -> Iterator[tuple[StoredRows, Array]]:
        """Yield stretches of at most `rows` rows and of about equal length: their stored rows, and their ranks.

        A stretch may have parts of several blocks: engines are faster on few long stretches.
        """
        stretches = -(-self.rows // max(1, rows))  # -(-a // b) rounds up
        most = -(-self.rows // stretches)
        most = max(1, min(rows, round_up(most, _ALIGNMENT)))
        size = self.embeddings.size
        for first in range(0, self.rows, most):
            stop = min(first + most, self.rows)
            pieces: StoredRows = []
            ranks: list[Array] = []
            first_block = int(np.searchsorted(self.bounds, first, "right")) - 1
            stop_block = int(np.searchsorted(self.bounds, stop))
            for block in range(first_block, stop_block):
                number = self.numbers[block]
                within = slice(max(first - self.bounds[block], 0), stop - self.bounds[block])
                pieces.append(self.embeddings.read_stored(number)[within])
                ranks.append(self.ranks[number * size : (number + 1) * size][within])
            yield pieces, np.concatenate(ranks)
            self.progress.add(stop - first)

    def join(self, pieces: StoredRows) -> FloatVectors:
        """Return the vectors of a stretch, float32, shape (rows, dim)."""
        vectors = np.empty((sum(map(len, pieces)), self.dimension), np.float32)
        start = 0
        for piece in pieces:
            vectors[start : start + len(piece)] = restore(piece)
            start += len(piece)
        return vectors
