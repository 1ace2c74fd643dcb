"""Exact search by FAISS: it proposes in float32, `exact.py` decides. No torch: their OpenMPs share no process well."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faiss
import numpy as np

from tandem.cluster.background import ahead
from tandem.retrieval.embeddings import Embeddings, Stretches, Vectors
from tandem.retrieval.exact import EXTRA, ROUNDING, SLACK, Array, Best, pack, query_scores

BATCH = 1024  # queries that are searched at once, where memory allows
SLICE = 32  # queries whose proposals a thread decides at a time
Map = Callable[[Callable[[slice], object], list[slice]], Any]


class BlockSearch:
    """Search in one stretch of passages: stored vectors, (passages, dim), and alphabetical ranks of their ids."""

    def __init__(self, vectors: Vectors, ranks: Array, temperature: float) -> None:
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        self.ranks, self.temperature = ranks, temperature
        # A float32 sum of squares may be low by its rounding: less than a thousandth.
        self.longest = 1.001 * float(np.sqrt(np.einsum("ij,ij->i", self.vectors, self.vectors).max()))

    def candidates(self, queries: Vectors, depth: int, floors: Array, run: Map = map) -> Array:
        """Packed candidates, (queries, any), 0 for none: all of the stretch's best `depth` that reach the floor.

        Queries are stored values, (queries, dim); `run` is `map` or that of a pool of threads.
        """
        labels, counts = self._propose(queries, depth, floors * self.temperature)
        keys = np.zeros(labels.shape, np.uint64)

        def decide(at: slice) -> None:
            for query in range(at.start, at.stop):
                rows = labels[query, : counts[query]]
                scores = query_scores(queries[query], self.vectors, rows, self.longest, self.temperature)
                keys[query, : len(rows)] = pack(scores, self.ranks[rows])

        list(run(decide, [slice(i, min(i + SLICE, len(queries))) for i in range(0, len(queries), SLICE)]))
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
        workers: threads; None leaves it to OpenMP.
    Returns:
        Packed, shape (queries, depth), in no order; 0 for none.
    """
    if workers:
        faiss.omp_set_num_threads(workers)
    # A proposal: FAISS's reservoir, scores and labels, candidates' keys, and the merge's copies of both.
    batch = min(BATCH, max(1, memory // 3 // (80 * (depth + EXTRA) + 16 * queries.shape[1])))
    rows = memory * 2 // 3 // (8 * passages.dimension + 16)
    best = Best(len(queries), depth)
    batches = [slice(first, min(first + batch, len(queries))) for first in range(0, len(queries), batch)]

    def stretches() -> Iterator[BlockSearch]:
        for pieces, ranks in passages.read(rows):
            yield BlockSearch(passages.join(pieces), ranks, passages.temperature)

    with ThreadPoolExecutor(workers or faiss.omp_get_max_threads()) as pool, ahead(stretches()) as coming:
        for stretch in coming:
            for at in batches:
                best.add(at, stretch.candidates(queries[at], depth, best.floors(at), pool.map))
    return best.keys


def exact_best(passages: Embeddings, queries: Array, ranks: Array, depth: int) -> Best:
    """Each query's exact top `depth`, by a pass over all passages; `ranks` has that of each row's id."""
    best, everyone = Best(len(queries), min(depth, passages.rows)), slice(0, len(queries))
    for start, vectors in passages.blocks():
        block = BlockSearch(vectors, ranks[start : start + len(vectors)], passages.temperature)
        best.add(everyone, block.candidates(queries, best.depth, best.floors(everyone)))
    return best
