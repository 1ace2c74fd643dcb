"""Exact search by FAISS: it proposes in float32, `exact.py` decides. No torch: their OpenMPs share no process well."""

import faiss
import numpy as np

from tandem.cluster.progress import Progress
from tandem.cluster.work import ahead
from tandem.retrieval.embeddings import Embeddings, Stretches, Vectors
from tandem.retrieval.exact import EXTRA, ROUNDING, SLACK, STRETCH, Array, Best, pack, query_scores
from tandem.retrieval.indexes.threads import Threads, alone

BATCH = 1024  # queries that a thread searches for at once, where memory allows


class BlockSearch:
    """Search in one stretch of passages: stored vectors, (passages, dim), and alphabetical ranks of their ids."""

    def __init__(self, vectors: Vectors, ranks: Array, temperature: float) -> None:
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        self.ranks, self.temperature = ranks, temperature
        # A float32 sum of squares may be low by its rounding: less than a thousandth.
        self.longest = 1.001 * float(np.sqrt(np.einsum("ij,ij->i", self.vectors, self.vectors).max()))

    def add_to(self, best: Best, queries: Vectors, threads: Threads, batch: int) -> None:
        """Search for all queries of `best`; each thread for at most `batch` of them at a time."""
        batch = max(1, min(batch, -(-len(queries) // threads.workers)))

        def add(at: slice) -> None:
            best.add(at, self.candidates(queries[at], best.depth, best.floors(at)))

        list(threads.map(add, (slice(first, first + batch) for first in range(0, len(queries), batch))))

    def candidates(self, queries: Vectors, depth: int, floors: Array) -> Array:
        """Packed candidates, (queries, any), 0 for none: all of the stretch's best `depth` that reach the floor.

        Queries are stored values, (queries, dim).
        """
        labels, counts = self._propose(queries, depth, floors * self.temperature)
        keys = np.zeros(labels.shape, np.uint64)
        for query, count in enumerate(counts):
            rows = labels[query, :count]
            scores = query_scores(queries[query], self.vectors, rows, self.longest, self.temperature)
            keys[query, :count] = pack(scores, self.ranks[rows])
        return keys

    def _propose(self, queries: Vectors, depth: int, floors: Array) -> tuple[Array, Array]:
        """Rows by FAISS, best first, shape (queries, any), and how many may be in the exact top `depth`, (queries,).

        A sum of d products is off by at most d unit round-offs of |q||p|, both for the passage and for the one at
        the cut; a few more cover the rounding of the scores themselves.
        """
        wide = np.ascontiguousarray(queries, np.float32)
        count = len(self.vectors)
        lengths = np.linalg.norm(wide.astype(np.float64), axis=1) * self.longest
        error = (wide.shape[1] + SLACK) * ROUNDING * lengths
        k = min(count, depth + EXTRA)
        while True:
            scores, labels = faiss.knn(wide, self.vectors, k, faiss.METRIC_INNER_PRODUCT)
            cut = np.maximum(scores[:, min(depth, count) - 1], floors) - 2 * error
            counts = (scores >= cut[:, None]).sum(axis=1)
            width = int(counts.max(initial=0))
            if k == count or width < k:
                return labels[:, :width], counts
            k = min(count, 2 * k)


def search(queries: Vectors, passages: Stretches, depth: int, memory: int, workers: int | None) -> Array:
    """The best `depth` passages of each query.

    Args:
        queries: stored values, shape (queries, dim).
        memory: bytes for vectors (two stretches, one being read) and tables beside the result.
        workers: threads; None takes as many as OpenMP would.
    Returns:
        Packed, shape (queries, depth), in no order; 0 for none.
    """
    best, read = Best(len(queries), depth), passages.read(memory * 2 // 3 // (8 * passages.dimension + 16))
    stretches = (BlockSearch(passages.join(pieces), ranks, passages.temperature) for pieces, ranks in read)
    with alone(workers) as threads, ahead(stretches) as coming:
        # A proposal: FAISS's reservoir, scores and labels, candidates' keys, and the merge's copies of both.
        proposals = 80 * (depth + EXTRA) + 16 * queries.shape[1]
        batch = min(BATCH, max(1, memory // 3 // threads.workers // proposals))
        for stretch in coming:
            stretch.add_to(best, queries, threads, batch)
    return best.keys


def exact_best(passages: Embeddings, queries: Array, ranks: Array, depth: int, threads: Threads) -> Best:
    """Each query's exact top `depth`, by a pass over all passages; `ranks` has that of each row's id."""
    best = Best(len(queries), min(depth, passages.rows))
    with Progress("exact search", passages.rows, "passages") as progress:
        stretches = Stretches(passages, range(len(passages)), ranks, progress)
        for pieces, own in stretches.read(STRETCH // (4 * passages.dimension)):
            BlockSearch(stretches.join(pieces), own, passages.temperature).add_to(best, queries, threads, BATCH)
    return best
