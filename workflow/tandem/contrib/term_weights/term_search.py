"""Store weights of terms in blocks of sparse rows, and search them (stage `retrieve_sparse`), without torch.

The stage finds the best passages of each query by the exact dot product. A passage without any of a query's terms is
not a result. The score is a float64 sum in the order of the vocabulary, rounded to float32, so that it depends only on
the pair, however blocks, threads and shards divide the work.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from tandem.cluster.progress import Progress
from tandem.contrib.term_weights.term_options import (
    ExactTermIndex,
    FrequencyIndex,
    PrunedIndex,
    RetrieveTermsParams,
)
from tandem.models.ragged import Ids
from tandem.retrieval import retrieve
from tandem.retrieval.embeddings import FP16, Blocks, Embeddings, name_block
from tandem.retrieval.exact import Array, BestPassages, pack_keys
from tandem.stages.base import Json
from tandem.stages.retrieval import RetrieveParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job

QUERIES_PER_PRODUCT = 32  # queries that are multiplied at once


class SparseBlocks(Blocks):
    """Write blocks of rows of weights, each as a file with three arrays: `starts` of rows, `terms` and `weights`."""

    suffix = ".npz"

    def write(self, number: int, vectors: Any, computed: dict[str, str]) -> Json:
        """Write a block of weights, a `csr_array` of shape (rows, vocabulary), and return its facts."""
        weights = vectors.data.astype(np.float16 if self.dtype == FP16 else np.float32)
        starts = vectors.indptr.astype(np.int64)
        terms = vectors.indices.astype(np.int32)
        facts: Mapping[str, object] = {
            "rows": vectors.shape[0],
            "weights": len(weights),
            "dtype": self.dtype,
        }

        def save(path: Path) -> None:
            with open(path, "wb") as file:
                np.savez(file, starts=starts, terms=terms, weights=weights)

        return self.pieces.write(self.name(number), save, **facts, **computed)

    def summarise(self, facts: Iterable[Json]) -> Json:
        """Return how many terms with a weight a row has on average."""
        weights = sum(block["weights"] for block in facts)
        return {"active_terms": round(weights / max(1, self.rows), 2)}


class TermWeights(Embeddings):
    """Open a finished `term_weights` artifact.

    Blocks and parts of them are `csr_array`s of shape (rows, vocabulary).
    """

    @property
    def active(self) -> float:
        """Return how many terms with a weight a row has on average."""
        return float(self.artifact.manifest.facts["active_terms"])

    @property
    def row_bytes(self) -> int:
        """Return the bytes of an average row: the number and the float64 weight of each of its terms."""
        return int(12 * self.active) + 8

    def read_stored(self, number: int) -> Any:
        """Read a block's weights, float32."""
        path = self.artifact.path(name_block(number, SparseBlocks.suffix))
        with np.load(path, allow_pickle=False) as arrays:
            weights = arrays["weights"]
            terms = arrays["terms"]
            starts = arrays["starts"]
        return csr_array(
            (weights.astype(np.float32), terms, starts), shape=(len(starts) - 1, self.dimension)
        )

    def read_block(self, number: int, rows: slice | Ids = slice(None)) -> Any:
        """Read the weights of a block, or of some of its rows, in float64, which holds every product of two exactly."""
        return self.read_stored(number)[rows].astype(np.float64)

    def _join(self, parts: list[Any]) -> Any:
        return vstack([csr_array((0, self.dimension)), *parts], format="csr")


class Pruned(TermWeights):
    """Read passages' weights without the terms that more than a given share of the passages have (Choi et al. 2022).

    Queries' weights of these terms then have no effect, as if they had been removed, too. All blocks are read once
    before the first search.
    """

    def __init__(self, artifact: Artifact, params: PrunedIndex) -> None:
        super().__init__(artifact, "passages")
        df = np.zeros(self.dimension, np.int64)
        for number in range(len(self)):
            df += np.bincount(super().read_stored(number).indices, minlength=self.dimension)
        self.common = df > params.above * self.rows

    def read_stored(self, number: int) -> Any:
        """Read the remaining weights of a block, float32."""
        weights = super().read_stored(number)
        weights.data[self.common[weights.indices]] = 0
        weights.eliminate_zeros()
        return weights


class Frequencies(TermWeights):
    """Read BM25's weights of passages from frequencies tf = round(scale · weight): DeepCT-Index (Dai and Callan 2019).

    w_{t,d} = idf(t) · tf / (tf + k1 (1 - b + b |d| / mean |d|)), with |d| = Σ_t tf and
    idf(t) = ln(1 + (N - df + 1/2) / (df + 1/2)): Lucene's BM25, except for Lucene's rounded lengths. All blocks are
    read once before the first search.
    """

    def __init__(self, artifact: Artifact, params: FrequencyIndex) -> None:
        super().__init__(artifact, "passages")
        self.params = params
        df = np.zeros(self.dimension)
        total = 0.0
        for number in range(len(self)):
            tf = self.read_frequencies(number)
            df += np.bincount(tf.indices, minlength=self.dimension)
            total += float(tf.data.sum())
        self.mean_length = total / self.rows
        self.idf = np.log1p((self.rows - df + 0.5) / (df + 0.5))

    def read_frequencies(self, number: int) -> Any:
        """Read a block's frequencies: whole numbers above 0, in float64."""
        tf = super().read_stored(number).astype(np.float64)
        tf.data = np.rint(tf.data * self.params.scale)
        tf.eliminate_zeros()
        return tf

    def read_stored(self, number: int) -> Any:
        """Compute a block's weights by BM25, float64."""
        k1 = self.params.k1
        b = self.params.b
        tf = self.read_frequencies(number)
        lengths = np.repeat(tf.sum(axis=1), np.diff(tf.indptr))
        norms = k1 * (1 - b + b * lengths / self.mean_length)
        tf.data *= self.idf[tf.indices] / (tf.data + norms)
        return tf


def open_passages(artifact: Artifact, index: ExactTermIndex | None) -> TermWeights:
    """Open passages' weights in the form that an exact search multiplies."""
    if index is None:
        return TermWeights(artifact, "passages")
    if isinstance(index, FrequencyIndex):
        return Frequencies(artifact, index)
    return Pruned(artifact, index)


def select_best(queries: Any, inverted: Any, ranks: Array, depth: int, temperature: float) -> Array:
    """Return the best passages of some queries, packed; 0 where a query has fewer.

    Args:
        queries: weights, a `csr_array` of float64, shape (queries, vocabulary), in the order of the vocabulary.
        inverted: weights of passages by term, a `csr_array` of float64, shape (vocabulary, passages).
        ranks: alphabetical ranks of the passages' ids, shape (passages,).
    Returns:
        Shape (queries, depth).
    """
    scores = queries @ inverted  # scipy adds a row's products in the order of its terms
    keys = np.zeros((queries.shape[0], depth), np.uint64)
    for row in range(len(keys)):
        stored = slice(scores.indptr[row], scores.indptr[row + 1])
        passages = scores.indices[stored]
        packed = pack_keys(scores.data[stored] / temperature, ranks[passages])
        if len(packed) > depth:
            packed = np.partition(packed, len(packed) - depth)[-depth:]
        keys[row, : len(packed)] = packed
    return keys


class SparseRetrieval(retrieve.Retrieval):
    """`Retrieval` over weights of terms, with an inverted index of a part of a block in memory."""

    vectors = TermWeights
    passages: TermWeights

    def __init__(self, job: Job[RetrieveParams]) -> None:
        super().__init__(job)
        if isinstance(job.params, RetrieveTermsParams) and job.params.index:
            self.passages = open_passages(job.inputs["passages"], job.params.index)

    def search(self, numbers: Sequence[int]) -> Iterator[Array]:
        """Yield the packed best passages in these blocks, a group of queries at a time, shape (group, depth)."""
        workers = self.job.execution.workers or 1
        # A passage's weights as stored, in float64 and by term, and its score for each query that is multiplied.
        bytes_per_passage = 4 * self.passages.row_bytes + 12 * QUERIES_PER_PRODUCT * workers
        step = max(1, self.memory // 2 // bytes_per_passage)
        total = len(self.groups) * self.passages.rows * len(numbers) // max(1, len(self.passages))
        with (
            Progress(f"retrieve {self.job.key}", total, "passages", quiet=not numbers) as progress,
            ThreadPoolExecutor(workers) as threads,
        ):
            for first in self.groups:
                queries = self.queries.take(first, first + self.group)
                starts = range(0, queries.shape[0], QUERIES_PER_PRODUCT)
                batches = [
                    slice(start, min(start + QUERIES_PER_PRODUCT, queries.shape[0]))
                    for start in starts
                ]
                best = BestPassages(queries.shape[0], self.depth)
                for number in numbers:
                    for inverted, ranks in self._invert(number, step):
                        select = partial(self._select_best, queries, inverted, ranks)
                        for batch, keys in zip(batches, threads.map(select, batches), strict=True):
                            best.add(batch, keys)
                        progress.add(inverted.shape[1])
                yield best.keys

    def _invert(self, number: int, step: int) -> Iterator[tuple[csr_array, Array]]:
        """Yield a block's weights by term, `step` passages at a time, with the passages' ranks."""
        rows = self.passages.read_stored(number)
        first = number * self.passages.size
        for start in range(0, rows.shape[0], step):
            inverted = rows[start : start + step].astype(np.float64).T.tocsr()
            ranks = self.order.ranks[first + start :][: inverted.shape[1]]
            yield inverted, ranks

    def _select_best(
        self, queries: csr_array, inverted: csr_array, ranks: Array, batch: slice
    ) -> Array:
        """Call `select_best` for a copy of some queries, so that a thread holds only the queries it searches for."""
        return select_best(queries[batch], inverted, ranks, self.depth, self.passages.temperature)


def run_shard(job: Job[RetrieveParams]) -> dict[str, object]:
    """Search this shard's range of blocks."""
    return retrieve.run_shard(job, SparseRetrieval)


def run(job: Job[RetrieveParams]) -> None:
    """Search the blocks that no shard has searched, merge, and write the run."""
    retrieve.run(job, SparseRetrieval)
