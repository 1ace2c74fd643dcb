"""Vectors as int8 with a scale each: about half the bytes of fp16.

    s = max_i |x_i| / 127, rounded up to 16 significant bits
    q_i = round(x_i / s), halves to even
    x'_i = s · q_i,  |x_i − x'_i| ≤ s / 2

A scale of 16 bits times a number of 7 is exact in float32: the vectors that are restored, and with them every score, do
not depend on who multiplies, and s · (q · p) may be computed in the place of x' · p. A vector of zeros has the scale 0.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tandem.artifact import Artifact, sha256, write_json
from tandem.errors import UserError
from tandem.progress import Progress
from tandem.retrieval.exact import Array

Array = np.ndarray[Any, np.dtype[Any]]
Vectors = np.ndarray[Any, np.dtype[np.floating[Any]]]

LARGEST = 127
BITS = 16
ROWS = 1024  # at once: float64 is wide


def row(dimension: int) -> np.dtype[Any]:
    """A vector in a file: its float32 scale, then its int8 values, nothing between them."""
    return np.dtype([("scale", "<f4"), ("values", "i1", (dimension,))])


def quantise(vectors: Vectors) -> Array:
    """Vectors as rows of `row`.

    Args:
        vectors: finite, shape (rows, dim).
    Returns:
        Shape (rows,).
    """
    made = np.zeros(len(vectors), row(vectors.shape[1]))
    for at in (slice(start, start + ROWS) for start in range(0, len(vectors), ROWS)):
        wide = vectors[at].astype(np.float64)
        fraction, exponent = np.frexp(np.abs(wide).max(axis=1, initial=0.0) / LARGEST)
        scale = np.ldexp(np.ceil(np.ldexp(fraction, BITS)), exponent - BITS)[:, None]
        np.divide(wide, scale, out=wide, where=scale > 0)
        made["values"][at] = np.rint(wide)
        made["scale"][at] = scale[:, 0]
    return made


def restore(stored: Array) -> Vectors:
    """The vectors that rows of `row` stand for, float32, shape (rows, dim)."""
    made: Vectors = stored["values"].astype(np.float32)
    made *= stored["scale"][:, None]
    return made


FP16, INT8 = "fp16", "int8"


def block_name(number: int) -> str:
    """The block's file, relative to the artifact."""
    return f"blocks/{number:05d}.npy"


@dataclass(frozen=True)
class Blocks:
    """The finished blocks of embeddings that are being made.

    Attributes:
        folder: the artifact's folder.
        rows: rows in all.
        size: rows of a block; the last may have fewer.
        origin: digest of everything that decides the vectors; a block of another origin does not count.
        dtype: how vectors are stored, `fp16` or `int8`.
    """

    folder: Path
    rows: int
    size: int
    origin: str
    dtype: str

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def span(self, number: int) -> slice:
        """The rows of a block."""
        return slice(number * self.size, min((number + 1) * self.size, self.rows))

    def path(self, number: int) -> Path:
        """Where a block is kept."""
        return self.folder / block_name(number)

    def told(self, number: int) -> dict[str, Any] | None:
        """What is known about a finished block; None if it is missing, damaged or of another origin."""
        try:
            told: dict[str, Any] = json.loads(self.path(number).with_suffix(".json").read_text())
            whole = told["origin"] == self.origin and told["sha256"] == sha256(self.path(number))
        except (FileNotFoundError, ValueError, KeyError):
            return None
        return told if whole else None

    def finished(self, numbers: Iterable[int], label: str, workers: int) -> dict[int, dict[str, Any]]:
        """What is known about those blocks that are finished, by number.

        Every byte of them is read and hashed, by so many threads: size and time do not tell a damaged block, and
        running the stage again is what mends one. The artifact's manifest takes these hashes over, so that they are
        read once.
        """
        there = [number for number in numbers if self.path(number).with_suffix(".json").exists()]
        found = {}
        with (
            Progress(f"check {label}", len(there), "blocks", quiet=not there) as progress,
            ThreadPoolExecutor(workers) as threads,
        ):
            for number, told in zip(there, threads.map(self.told, there), strict=True):
                if told is not None:
                    found[number] = told
                progress.add(1)
        return found

    def write(self, number: int, vectors: Vectors, facts: dict[str, Any]) -> dict[str, Any]:
        """Keep a block: the vectors first, then what says that they are whole, which is returned.

        Args:
            number: the block's.
            vectors: fp16, or what int8 is made of; shape (rows of the block, dim).
            facts: more to say about it.
        """
        path = self.path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with open(partial, "wb") as file:
            np.save(file, quantise(vectors) if self.dtype == INT8 else vectors)
        os.replace(partial, path)
        told = {"rows": len(vectors), "dtype": self.dtype, "sha256": sha256(path), "origin": self.origin, **facts}
        write_json(path.with_suffix(".json"), told)
        return told

    def tidy(self) -> None:
        """Remove what killed processes left half written; to be called when nobody writes."""
        for partial in self.folder.glob("blocks/.*"):
            partial.unlink()


class Embeddings:
    """A finished `embeddings` artifact; blocks are memory-mapped.

    Readers get vectors: fp16 as they stand in the file, or float32, exactly what int8 and its scale stand for.

    Attributes:
        rows: vectors in all.
        dimension: their length.
        size: rows of a block; the last may have fewer.
        dtype: how they are stored, `fp16` or `int8`.
    """

    def __init__(self, artifact: Artifact, side: str) -> None:
        if artifact.params["side"] != side:
            raise UserError(f"{artifact.folder}: holds embeddings of {artifact.params['side']}; expected {side}")
        self.artifact = artifact
        self.meta: dict[str, Any] = json.loads(artifact.path("meta.json").read_text())
        self.rows: int = self.meta["rows"]
        self.dimension: int = self.meta["dimension"]
        self.size: int = self.meta["block"]
        self.dtype: str = self.meta.get("dtype", FP16)  # artifacts older than int8 do not say it

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def stored(self, number: int) -> Array:
        """A block as it is in its file, memory-mapped: fp16, shape (rows, dim), or rows of `quantised.row`."""
        made: Array = np.load(self.artifact.path(block_name(number)), mmap_mode="r", allow_pickle=False)
        return made

    def block(self, number: int, rows: slice | Array = slice(None)) -> Vectors:
        """The vectors of a block, or of some of its rows."""
        stored = self.stored(number)[rows]
        return restore(stored) if self.dtype == INT8 else stored

    def blocks(self) -> Iterator[tuple[int, Vectors]]:
        """(first row, vectors) of each block, in order."""
        for number in range(len(self)):
            yield number * self.size, self.block(number)

    def take(self, start: int, stop: int) -> Vectors:
        """The vectors of the rows from start to stop, in memory."""
        firsts = range(start // self.size * self.size, min(stop, self.rows), self.size)
        parts = [self.block(first // self.size, slice(max(start - first, 0), stop - first)) for first in firsts]
        return np.concatenate(parts) if parts else np.empty((0, self.dimension), np.float16)


ALIGNED = 64  # lengths that engines like
Pieces = list[Array]  # rows as they are stored, memory-mapped


class Stretches:
    """Some blocks of embeddings, to be read in order and any number of times.

    Args:
        embeddings: of passages.
        numbers: the blocks.
        ranks: alphabetical rank of each passage's id, of all passages.
        progress: counts passages that were read.
    """

    def __init__(self, embeddings: Embeddings, numbers: Sequence[int], ranks: Array, progress: Progress) -> None:
        self.embeddings, self.numbers, self.ranks, self.progress = embeddings, numbers, ranks, progress
        self.dimension: int = embeddings.dimension
        self.temperature: float = embeddings.meta["temperature"]
        size = embeddings.size
        self.rows = sum(min(size, embeddings.rows - number * size) for number in numbers)

    def of(self, rows: int) -> Iterator[tuple[Pieces, Array]]:
        """Stretches of at most so many rows, alike in length: what is stored, and the ranks.

        Blocks are cut, and put together, as it takes: an engine wastes less on few long stretches.
        """
        most = -(-self.rows // -(-self.rows // max(1, rows)))
        most = max(1, min(rows, -(-most // ALIGNED) * ALIGNED))
        pieces, ranks, held = Pieces(), list[Array](), 0
        for number in self.numbers:
            stored, first = self.embeddings.stored(number), number * self.embeddings.size
            start = 0
            while start < len(stored):
                stop = min(len(stored), start + most - held)
                pieces.append(stored[start:stop])
                ranks.append(self.ranks[first + start : first + stop])
                held, start = held + stop - start, stop
                if held == most:
                    yield pieces, np.concatenate(ranks)
                    self.progress.add(held)
                    pieces, ranks, held = Pieces(), [], 0
        if held:
            yield pieces, np.concatenate(ranks)
            self.progress.add(held)

    def joined(self, pieces: Pieces) -> Vectors:
        """The vectors of a stretch, float32, shape (rows, dim)."""
        made = np.empty((sum(map(len, pieces)), self.dimension), np.float32)
        start = 0
        for piece in pieces:
            made[start : start + len(piece)] = restore(piece) if piece.dtype.names else piece
            start += len(piece)
        return made
