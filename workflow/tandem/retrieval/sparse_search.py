"""Stage `retrieve_sparse`: the best passages of each query by the exact dot product of weights of terms.

A passage without any of a query's terms is no result. The score is a float64 sum in the order of the vocabulary,
rounded to float32: a function of the pair alone, whatever blocks, threads and shards share the work.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.retrieval import retrieve
from tandem.retrieval.exact import Array, Best, pack
from tandem.retrieval.term_weights import TermWeights, open_passages
from tandem.stages.retrieval import RetrieveParams, RetrieveTermsParams
from tandem.store.job import Job

QUERIES = 32  # that are multiplied at once


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
        packed = pack(scores.data[at] / temperature, ranks[scores.indices[at]])
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
        workers = self.job.execution.workers or 1
        # Of a passage: its weights as stored, in float64 and by term, and a score for each query that is multiplied.
        per_passage = 4 * self.passages.row_bytes + 12 * QUERIES * workers
        step = max(1, self.memory // 2 // per_passage)
        total = len(self.groups) * self.passages.rows * len(numbers) // max(1, len(self.passages))
        with (
            Progress(f"retrieve {self.job.key}", total, "passages", quiet=not numbers) as progress,
            ThreadPoolExecutor(workers) as threads,
        ):
            for first in self.groups:
                queries = self.queries.take(first, first + self.group)
                best, size = Best(queries.shape[0], self.depth), self.passages.size
                parts = [slice(at, min(at + QUERIES, len(best.keys))) for at in range(0, len(best.keys), QUERIES)]
                for number in numbers:
                    rows = self.passages.stored(number)
                    for start in range(0, rows.shape[0], step):
                        inverted = rows[start : start + step].astype(np.float64).T.tocsr()
                        ranks = self.order.ranks[number * size + start :][: inverted.shape[1]]
                        search = partial(self._part, queries, inverted, ranks)
                        for at, keys in zip(parts, threads.map(search, parts), strict=True):
                            best.add(at, keys)
                        progress.add(inverted.shape[1])
                yield best.keys

    def _part(self, queries: Any, inverted: Any, ranks: Array, at: slice) -> Array:
        return best_of(queries[at], inverted, ranks, self.depth, self.passages.temperature)


def run_shard(job: Job[RetrieveParams]) -> dict[str, object]:
    """Search this shard's range of blocks."""
    return retrieve.run_shard(job, SparseRetrieval)


def run(job: Job[RetrieveParams]) -> None:
    """Search the blocks that no shard has searched, merge, and write the run."""
    retrieve.run(job, SparseRetrieval)
