"""Weights of terms: on disk, in blocks of rows of those that are not 0, and stage `retrieve_sparse`. No torch here.

The stage finds the best passages of each query by the exact dot product. A passage without any of a query's terms is no
result. The score is a float64 sum in the order of the vocabulary, rounded to float32: a function of the pair alone,
whatever blocks, threads and shards share the work.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from tandem.cluster.progress import Progress
from tandem.config.indexes import ExactTermIndex, FrequencyIndex, PrunedIndex
from tandem.models.ragged import Ids
from tandem.retrieval import retrieve
from tandem.retrieval.embeddings import FP16, Blocks, Embeddings, block_name
from tandem.retrieval.exact import Array, BestPassages, pack_keys
from tandem.stages.base import Json
from tandem.stages.retrieval import RetrieveParams, RetrieveTermsParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job

QUERIES_PER_PRODUCT = 32  # that are multiplied at once


class SparseBlocks(Blocks):
    """Blocks of rows of weights, each a file with three arrays: `starts` of rows, `terms` and `weights`."""

    suffix = ".npz"

    def write(self, number: int, vectors: Any, computed: dict[str, str]) -> Json:
        """Write a block of weights, a `csr_array` of shape (rows, vocabulary), with facts."""
        weights = vectors.data.astype(np.float16 if self.dtype == FP16 else np.float32)
        starts, terms = vectors.indptr.astype(np.int64), vectors.indices.astype(np.int32)
        facts: Mapping[str, object] = {"rows": vectors.shape[0], "weights": len(weights), "dtype": self.dtype}

        def save(path: Path) -> None:
            with open(path, "wb") as file:
                np.savez(file, starts=starts, terms=terms, weights=weights)

        return self.pieces.write(self.name(number), save, **facts, **computed)


class TermWeights(Embeddings):
    """A finished `term_weights` artifact; blocks and parts of them are `csr_array`s of shape (rows, vocabulary)."""

    @property
    def active(self) -> float:
        """Terms with a weight of the mean row."""
        return float(self.artifact.manifest.facts["active_terms"])

    @property
    def row_bytes(self) -> int:
        """The bytes of the mean row: the number and float64 weight of each of its terms."""
        return int(12 * self.active) + 8

    def stored(self, number: int) -> Any:
        """A block's weights, float32, in memory."""
        with np.load(self.artifact.path(block_name(number, SparseBlocks.suffix)), allow_pickle=False) as arrays:
            weights, terms, starts = (arrays[name] for name in ("weights", "terms", "starts"))
        return csr_array((weights.astype(np.float32), terms, starts), shape=(len(starts) - 1, self.dimension))

    def block(self, number: int, rows: slice | Ids = slice(None)) -> Any:
        """The weights of a block, or of some of its rows, in float64, which holds every product of two exactly."""
        return self.stored(number)[rows].astype(np.float64)

    def _join(self, parts: list[Any]) -> Any:
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


def best_of(queries: Any, inverted: Any, ranks: Array, depth: int, temperature: float) -> Array:
    """The best passages of some queries, packed, 0 for none.

    Args:
        queries: weights, a `csr_array` of float64, shape (queries, vocabulary), in the order of the vocabulary.
        inverted: weights of passages by term, the same, shape (vocabulary, passages).
        ranks: alphabetical ranks of the passages' ids, shape (passages,).
    Returns:
        Shape (queries, depth).
    """
    scores = queries @ inverted  # scipy adds a row's products in the order of its terms
    keys = np.zeros((queries.shape[0], depth), np.uint64)
    for row in range(len(keys)):
        at = slice(scores.indptr[row], scores.indptr[row + 1])
        packed = pack_keys(scores.data[at] / temperature, ranks[scores.indices[at]])
        if len(packed) > depth:
            packed = np.partition(packed, len(packed) - depth)[-depth:]
        keys[row, : len(packed)] = packed
    return keys


class SparseRetrieval(retrieve.Retrieval):
    """`Retrieval` over weights of terms, of which an inverted index of a part of a block is in memory."""

    vectors = TermWeights
    passages: TermWeights

    def __init__(self, job: Job[RetrieveParams]) -> None:
        super().__init__(job)
        if isinstance(job.params, RetrieveTermsParams) and job.params.index:
            self.passages = open_passages(job.inputs["passages"], job.params.index)

    def search(self, numbers: Sequence[int]) -> Iterator[Array]:
        """Packed best passages of these blocks, a group of queries at a time, shape (group, depth)."""
        workers, size = self.job.execution.workers or 1, self.passages.size
        # Of a passage: its weights as stored, in float64 and by term, and a score for each query that is multiplied.
        per_passage = 4 * self.passages.row_bytes + 12 * QUERIES_PER_PRODUCT * workers
        step = max(1, self.memory // 2 // per_passage)
        total = len(self.groups) * self.passages.rows * len(numbers) // max(1, len(self.passages))
        with (
            Progress(f"retrieve {self.job.key}", total, "passages", quiet=not numbers) as progress,
            ThreadPoolExecutor(workers) as threads,
        ):
            for first in self.groups:
                queries = self.queries.take(first, first + self.group)
                spans = [
                    slice(at, min(at + QUERIES_PER_PRODUCT, queries.shape[0]))
                    for at in range(0, queries.shape[0], QUERIES_PER_PRODUCT)
                ]
                best = BestPassages(queries.shape[0], self.depth)
                for number in numbers:
                    rows = self.passages.stored(number)
                    for start in range(0, rows.shape[0], step):
                        inverted = rows[start : start + step].astype(np.float64).T.tocsr()
                        ranks = self.order.ranks[number * size + start :][: inverted.shape[1]]
                        part = partial(self._best_of, queries, inverted, ranks)
                        for at, keys in zip(spans, threads.map(part, spans), strict=True):
                            best.add(at, keys)
                        progress.add(inverted.shape[1])
                yield best.keys

    def _best_of(self, queries: csr_array, inverted: csr_array, ranks: Array, at: slice) -> Array:
        """`best_of` for a slice of the queries, copied here, so that a thread holds only those that it searches for."""
        return best_of(queries[at], inverted, ranks, self.depth, self.passages.temperature)


def run_shard(job: Job[RetrieveParams]) -> dict[str, object]:
    """Search this shard's range of blocks."""
    return retrieve.run_shard(job, SparseRetrieval)


def run(job: Job[RetrieveParams]) -> None:
    """Search the blocks that no shard has searched, merge, and write the run."""
    retrieve.run(job, SparseRetrieval)
