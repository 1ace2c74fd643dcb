"""Search over built embeddings in a worker, one query at a time: exact, or through an index."""

from contextlib import ExitStack
from typing import Any

import faiss
import numpy as np
from scipy.sparse import csr_array

from tandem.data.rows import Order
from tandem.extras.demo.workers import PartData, Question, open_inputs
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array, Best, pair_scores
from tandem.retrieval.faiss_search import BlockSearch
from tandem.retrieval.indexes import search
from tandem.retrieval.indexes.threads import alone
from tandem.retrieval.sparse_search import best_of
from tandem.retrieval.term_weights import Frequencies, TermWeights
from tandem.stages.retrieval import AnnParams, RetrieveTermsParams

CACHE = 2 << 30  # bytes of blocks that stay ready
PER_VALUE = 4  # bytes of a value of a block that is ready


def open_part(part: PartData, threads: int, count: int) -> "Vectors | Terms":
    """What a dual encoder searches: see the classes."""
    is_sparse = open_inputs(part)["passages"].kind == "term_weights"
    return Terms(part) if is_sparse else Vectors(part, threads, count)


class Terms:
    """Weights of terms, or BM25's of them as frequencies, by term and all in memory."""

    def __init__(self, part: PartData) -> None:
        inputs, known = open_inputs(part), RetrieveTermsParams.model_fields
        how = RetrieveTermsParams.model_validate({name: part["params"][name] for name in known & part["params"].keys()})
        own, passages = how.frequencies, inputs["passages"]
        opened = Frequencies(passages, own) if own else TermWeights(passages, "passages")
        self.order, self.temperature = Order(inputs["dataset"]), opened.temperature
        self.inverted = opened.take(0, opened.rows).T.tocsr()

    def answer(self, question: Question) -> Any:
        """As `Vectors.answer`, of a query's weights; a passage that shares no term with the query is not found."""
        query = csr_array(np.array([question["vector"]]))
        if "rows" in question:
            scores = (query @ self.inverted).toarray()[0, question["rows"]] / self.temperature
            return scores.astype(np.float32).tolist()
        best = Best(1, min(question["depth"], len(self.order.ranks)))
        best.keys[:] = best_of(query, self.inverted, self.order.ranks, best.depth, self.temperature)
        ranks, scores = best.ranked(0)
        return self.order.ids(ranks), scores.tolist()


class Vectors:
    """Embeddings of passages; `threads` are FAISS's, and `count` such parts share the memory of ready blocks."""

    def __init__(self, part: PartData, threads: int, count: int) -> None:
        faiss.omp_set_num_threads(threads)
        inputs, params, self._open = open_inputs(part), part["params"], ExitStack()
        self.passages, self.order = Embeddings(inputs["passages"], "passages"), Order(inputs["dataset"])
        if "index" not in inputs:
            self.searcher: Exact | search.Searcher = Exact(self.passages, self.order.ranks, CACHE // count)
        else:
            index = search.Index(inputs["index"], self._open.enter_context(alone(threads)))
            how = AnnParams.model_validate({name: params[name] for name in AnnParams.model_fields.keys() & params})
            index.tune(how.nprobe, how.ef_search)
            self.searcher = search.Searcher(index, self.passages, self.order.ranks, how.rescore, how.rescore_factor)

    def answer(self, question: Question) -> Any:
        """With `rows`: their scores for the query's `vector`; with `depth`: (ids, scores) of the best passages."""
        vector = np.array(question["vector"], np.float32)[None]
        if "rows" in question:
            rows = self.passages.at(question["rows"])
            return pair_scores(np.repeat(vector, len(rows), axis=0), rows, self.passages.temperature).tolist()
        ranks, scores = self.searcher.best(vector, min(question["depth"], self.passages.rows)).ranked(0)
        return self.order.ids(ranks), scores.tolist()


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
        """The best passages of queries, ties by document id."""
        best, at = Best(len(queries), depth), slice(0, len(queries))
        for number in range(len(self.passages)):
            block = self.ready[number] if number < len(self.ready) else self._block(number)
            best.add(at, block.candidates(queries, depth, best.floors(at)))
        return best
