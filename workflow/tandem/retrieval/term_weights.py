"""Weights of terms on disk: blocks of rows, as those of vectors, of the weights that are not 0 alone. No torch here."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from tandem.config.indexes import ExactTermIndex, FrequencyIndex, PrunedIndex
from tandem.errors import UserError
from tandem.models.ragged import Ids
from tandem.retrieval.embeddings import FP16, Blocks, Embeddings
from tandem.stages.base import Json
from tandem.store.artifact import Artifact


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

    def require_index(self, index: Artifact) -> None:
        """Refuse an index of other weights."""
        if (source := Path(index.upstream["passages"]).name) != self.artifact.key:
            raise UserError(f"{index.folder}: was made from {source}; expected {self.artifact.key}")

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


class Pruned(TermWeights):
    """Passages' weights without the terms that more than a share of the passages have (Choi et al. 2022).

    Queries' weights of these terms meet nothing, as if they had been cut out there too. All blocks are read once before
    the first search.
    """

    def __init__(self, artifact: Artifact, params: PrunedIndex) -> None:
        super().__init__(artifact, "passages")
        df = np.zeros(self.dimension, np.int64)
        for number in range(len(self)):
            df += np.bincount(super().stored(number).indices, minlength=self.dimension)
        self.common = df > params.above * self.rows

    def stored(self, number: int) -> Any:
        """A block's weights that are left, float32, in memory."""
        weights = super().stored(number)
        weights.data[self.common[weights.indices]] = 0
        weights.eliminate_zeros()
        return weights


class Frequencies(TermWeights):
    """Passages' weights by BM25, of frequencies tf = round(scale · weight): DeepCT-Index (Dai and Callan 2019).

    w_{t,d} = idf(t) · tf / (tf + k1 (1 - b + b |d| / mean |d|)), with |d| = Σ_t tf and
    idf(t) = ln(1 + (N - df + 1/2) / (df + 1/2)): Lucene's, but for its rounded lengths. All blocks are read once before
    the first search.
    """

    def __init__(self, artifact: Artifact, params: FrequencyIndex) -> None:
        super().__init__(artifact, "passages")
        self.params, df, total = params, np.zeros(self.dimension), 0.0
        for number in range(len(self)):
            tf = self.frequencies(number)
            df += np.bincount(tf.indices, minlength=self.dimension)
            total += float(tf.data.sum())
        self.mean, self.idf = total / self.rows, np.log1p((self.rows - df + 0.5) / (df + 0.5))

    def frequencies(self, number: int) -> Any:
        """A block's frequencies: whole numbers above 0, in float64."""
        tf = super().stored(number).astype(np.float64)
        tf.data = np.rint(tf.data * self.params.scale)
        tf.eliminate_zeros()
        return tf

    def stored(self, number: int) -> Any:
        """A block's weights by BM25, float64, in memory."""
        tf, k1, b = self.frequencies(number), self.params.k1, self.params.b
        lengths = np.repeat(tf.sum(axis=1), np.diff(tf.indptr))
        tf.data *= self.idf[tf.indices] / (tf.data + k1 * (1 - b + b * lengths / self.mean))
        return tf


def open_passages(artifact: Artifact, index: ExactTermIndex | None) -> TermWeights:
    """Passages' weights as an exact search multiplies them."""
    if isinstance(index, FrequencyIndex):
        return Frequencies(artifact, index)
    return Pruned(artifact, index) if index else TermWeights(artifact, "passages")
