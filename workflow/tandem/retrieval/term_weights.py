"""Weights of terms on disk: blocks of rows, as those of vectors, of the weights that are not 0 alone. No torch here."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from tandem.models.ragged import Ids
from tandem.retrieval.embeddings import FP16, Blocks, Embeddings
from tandem.stages.base import Json


def block_name(number: int) -> str:
    """The block's file, relative to the artifact."""
    return f"blocks/{number:05d}.npz"


class SparseBlocks(Blocks):
    """Blocks of rows of weights, each a file with three arrays: `starts` of rows, `terms` and `weights`."""

    def name(self, number: int) -> str:
        """The block's file, relative to the artifact."""
        return block_name(number)

    def write(self, number: int, vectors: Any, computed: dict[str, str]) -> Json:
        """Write a block of weights, a `csr_array` of shape (rows, vocabulary), with facts."""
        weights = vectors.data.astype(np.float16 if self.dtype == FP16 else np.float32)
        starts, terms = vectors.indptr.astype(np.int64), vectors.indices.astype(np.int32)
        facts: Mapping[str, object] = {"rows": vectors.shape[0], "weights": len(weights), "dtype": self.dtype}

        def save(path: Path) -> None:
            with open(path, "wb") as file:
                np.savez(file, starts=starts, terms=terms, weights=weights)

        return self.pieces.write(self.name(number), save, **facts, **computed)

    def summary(self, facts: Iterable[Json]) -> Json:
        """The mean number of a text's terms with a weight."""
        blocks = list(facts)
        weights, rows = (sum(block[key] for block in blocks) for key in ("weights", "rows"))
        return {"active_terms": round(weights / max(1, rows), 2)}


class TermWeights(Embeddings):
    """A finished `term_weights` artifact; blocks and parts of them are `csr_array`s of shape (rows, vocabulary)."""

    @property
    def active(self) -> float:
        """Terms with a weight of the mean row."""
        return float(self.artifact.manifest.facts["active_terms"])

    @property
    def row_bytes(self) -> int:
        """What the mean row takes in memory: number and float64 of each term."""
        return int(12 * self.active) + 8

    def stored(self, number: int) -> Any:
        """A block's weights, float32, in memory."""
        with np.load(self.artifact.path(block_name(number)), allow_pickle=False) as arrays:
            weights, terms, starts = (arrays[name] for name in ("weights", "terms", "starts"))
        return csr_array((weights.astype(np.float32), terms, starts), shape=(len(starts) - 1, self.dimension))

    def block(self, number: int, rows: slice | Ids = slice(None)) -> Any:
        """The weights of a block, or of some of its rows, in float64, which holds every product of two exactly."""
        return self.stored(number)[rows].astype(np.float64)

    def take(self, start: int, stop: int) -> Any:
        """The weights of the rows from start to stop, in float64."""
        firsts = range(start // self.size * self.size, min(stop, self.rows), self.size)
        parts = [self.block(first // self.size, slice(max(start - first, 0), stop - first)) for first in firsts]
        return vstack([csr_array((0, self.dimension)), *parts], format="csr")
