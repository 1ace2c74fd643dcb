"""Search over built embeddings in a worker, one query at a time: exact, or through an index."""

from contextlib import ExitStack
from typing import Any

import faiss
import numpy as np

from tandem.data.rows import Order
from tandem.extras.demo.workers import PartData, Question, open_inputs
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array, Best, pair_scores
from tandem.retrieval.faiss_search import BlockSearch
from tandem.retrieval.indexes import search
from tandem.retrieval.indexes.threads import alone
from tandem.stages.retrieval import AnnParams
from tandem.store.artifact import Artifact

CACHE = 2 << 30  # bytes of blocks that stay ready
PER_VALUE = 4  # bytes of a value of a block that is ready


class Vectors:
    """Embeddings of passages, by part; `threads` are FAISS's."""

    def __init__(self, parts: dict[str, PartData], threads: int) -> None:
        faiss.omp_set_num_threads(threads)
        self._open = ExitStack()
        self.parts: dict[str, tuple[Exact | search.Searcher, Embeddings, Order]] = {}
        for key, part in parts.items():
            inputs = open_inputs(part)
            passages, order = Embeddings(inputs["passages"], "passages"), Order(inputs["dataset"])
            if "index" in inputs:
                searcher: Exact | search.Searcher = self._indexed(
                    inputs["index"], passages, order.ranks, part["params"], threads
                )
            else:
                searcher = Exact(passages, order.ranks, CACHE // len(parts))
            self.parts[key] = searcher, passages, order

    def _indexed(
        self, index: Artifact, passages: Embeddings, ranks: Array, params: dict[str, Any], threads: int
    ) -> search.Searcher:
        opened = search.Index(index, self._open.enter_context(alone(threads)))
        how = AnnParams.model_validate({name: params[name] for name in AnnParams.model_fields.keys() & params})
        opened.tune(how.nprobe, how.ef_search)
        return search.Searcher(opened, passages, ranks, how.rescore, how.rescore_factor)

    def answer(self, question: Question) -> Any:
        """With `rows`: their scores for the query's `vector`; with `depth`: (ids, scores) of the best passages."""
        searcher, passages, order = self.parts[question["part"]]
        vector = np.array(question["vector"], np.float16)[None]
        if "rows" in question:
            rows = passages.at(question["rows"])
            return pair_scores(np.repeat(vector, len(rows), axis=0), rows, passages.temperature).tolist()
        ranks, scores = searcher.best(vector, min(question["depth"], passages.rows)).ranked(0)
        return order.ids(ranks), scores.tolist()


class Exact:
    """The search of the stage `retrieve`, one block after the other.

    The searchers of blocks that fit into `room` bytes are kept; other blocks are mapped from disk for each query.
    """

    def __init__(self, passages: Embeddings, ranks: Array, room: int) -> None:
        self.passages, self.ranks = passages, ranks
        count = room // (PER_VALUE * passages.dimension * passages.size)
        self.ready = [self._block(number) for number in range(min(count, len(passages)))]

    def _block(self, number: int) -> BlockSearch:
        first, vectors = number * self.passages.size, self.passages.block(number)
        return BlockSearch(vectors, self.ranks[first : first + len(vectors)], self.passages.temperature)

    def best(self, queries: Array, depth: int) -> Best:
        """The best passages of queries (fp16), ties by document id."""
        best, at = Best(len(queries), depth), slice(0, len(queries))
        for number in range(len(self.passages)):
            block = self.ready[number] if number < len(self.ready) else self._block(number)
            best.add(at, block.candidates(queries, depth, best.floors(at)))
        return best
