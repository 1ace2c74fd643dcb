"""Search over built embeddings in a worker, one query at a time: exact, or through an index."""

import faiss
import numpy as np

from tandem.extras.searched_indexes import RankedSearch, served_index
from tandem.extras.serving import WORKER_THREADS, Searched, Served, served_search
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array, BestPassages, score_vector_pairs
from tandem.retrieval.faiss_search import BlockSearch, open_threads
from tandem.stages import declaration

CACHE = 2 << 30  # bytes of the blocks that stay in memory
PER_VALUE = 4  # bytes of a value in such a block


def open_searched(part: Served) -> Searched:
    """Open the passages that a dual encoder searches."""
    return served_search[declaration(part.inputs["passages"].kind).vectors](part)


@served_search("text")
class SearchedVectors(Searched):
    """Embeddings of passages: searched through an index, or block by block as the stage `retrieve` does.

    The searchers of blocks that fit into a part's share of `CACHE` are kept; other blocks are mapped from disk for each
    query.
    """

    def __init__(self, part: Served) -> None:
        faiss.omp_set_num_threads(WORKER_THREADS)
        super().__init__(part)
        self.passages = Embeddings(part.inputs["passages"], "passages")
        self.index: RankedSearch | None = None
        self.ready: list[BlockSearch] = []
        if "index" in part.inputs:
            serve = served_index[part.inputs["index"].kind]
            threads = self._open.enter_context(open_threads(WORKER_THREADS))
            self.index = serve(part, self.passages, self.order.ranks, threads)
        else:
            block = PER_VALUE * self.passages.dimension * self.passages.size  # bytes
            fitting = CACHE // part.count // block
            self.ready = [self._block(number) for number in range(min(fitting, len(self.passages)))]

    def _block(self, number: int) -> BlockSearch:
        first, vectors = number * self.passages.size, self.passages.read_block(number)
        return BlockSearch(
            vectors, self.order.ranks[first : first + len(vectors)], self.passages.temperature
        )

    def _score(self, vector: list[float], rows: list[int]) -> Array:
        passages = self.passages.pick(rows)
        queries = np.repeat(np.array([vector], np.float32), len(passages), axis=0)
        return score_vector_pairs(queries, passages, self.passages.temperature)

    def _find_best(self, vector: list[float], depth: int) -> BestPassages:
        query = np.array([vector], np.float32)
        if self.index:
            return self.index.search(query, depth)
        best, at = BestPassages(1, depth), slice(0, 1)
        for number in range(len(self.passages)):
            block = self.ready[number] if number < len(self.ready) else self._block(number)
            best.add(at, block.candidates(query, depth, best.find_floors(at)))
        return best
