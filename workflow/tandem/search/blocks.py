"""Embeddings on disk: blocks of a fixed number of rows, so that how the work was split shows in no byte.

A block is `blocks/<number>.npy`, fp16; beside it `<number>.json` says what it was made from, so that a killed run
goes on after its last finished block.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tandem.artifact import Artifact, sha256, write_json
from tandem.errors import UserError

Half = np.ndarray[Any, np.dtype[np.float16]]


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
    """

    folder: Path
    rows: int
    size: int
    origin: str

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def span(self, number: int) -> tuple[int, int]:
        """First row of a block and the row after its last."""
        return number * self.size, min((number + 1) * self.size, self.rows)

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

    def write(self, number: int, vectors: Half, facts: dict[str, Any]) -> None:
        """Keep a block: the vectors first, then what says that they are whole."""
        path = self.path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with open(partial, "wb") as file:
            np.save(file, vectors)
        os.replace(partial, path)
        told = {"rows": len(vectors), "sha256": sha256(path), "origin": self.origin, **facts}
        write_json(path.with_suffix(".json"), told)


class Embeddings:
    """A finished `embeddings` artifact; blocks are memory-mapped."""

    def __init__(self, artifact: Artifact, side: str) -> None:
        if artifact.params["side"] != side:
            raise UserError(f"{artifact.folder}: holds embeddings of {artifact.params['side']}; expected {side}")
        self.artifact = artifact
        self.meta: dict[str, Any] = json.loads(artifact.path("meta.json").read_text())
        self.rows: int = self.meta["rows"]
        self.dimension: int = self.meta["dimension"]

    def __len__(self) -> int:
        return -(-self.rows // int(self.meta["block"]))

    def blocks(self) -> Iterator[tuple[int, Half]]:
        """(first row, vectors) of each block, in order."""
        for number in range(len(self)):
            vectors = np.load(self.artifact.path(block_name(number)), mmap_mode="r", allow_pickle=False)
            yield number * int(self.meta["block"]), vectors

    def take(self, start: int, stop: int) -> Half:
        """The vectors of the rows from start to stop, in memory."""
        parts = [
            np.asarray(vectors[max(start - first, 0) : max(stop - first, 0)])
            for first, vectors in self.blocks()
            if first < stop and first + len(vectors) > start
        ]
        return np.concatenate(parts) if parts else np.empty((0, self.dimension), np.float16)
