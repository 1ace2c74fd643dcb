"""Embeddings on disk: blocks of a fixed number of rows, so that how the work was split shows in no byte.

A block is `blocks/<number>.npy`: fp16, or int8 with a scale for each vector (see `quantised.py`). Beside it
`<number>.json` says what it was made from, so that a killed run goes on after its last finished block.
"""

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.errors import UserError
from tandem.search.quantised import Array, quantise, restore
from tandem.search.quantised import Vectors as Vectors
from tandem.store.artifact import Artifact
from tandem.store.files import sha256, write_json

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
