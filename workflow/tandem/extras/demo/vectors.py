"""Search over built embeddings in a worker, one query at a time: exact, or through an index."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import faiss
import numpy as np
from scipy.sparse import csr_array

from tandem.config.execution import Execution
from tandem.data.rows import Order
from tandem.extras.demo.workers import PartData, Question, open_inputs
from tandem.retrieval import maxsim
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array, Best, pair_scores
from tandem.retrieval.faiss_search import BlockSearch
from tandem.retrieval.indexes import search
from tandem.retrieval.indexes.threads import alone
from tandem.retrieval.sparse_search import best_of
from tandem.retrieval.term_weights import open_passages
from tandem.stages.base import Params
from tandem.stages.retrieval import AnnParams, MaxSimParams, RetrieveTermsParams
from tandem.store.job import Job

P = TypeVar("P", bound=Params)

CACHE = 2 << 30  # bytes of blocks that stay ready
PER_VALUE = 4  # bytes of a value of a block that is ready


def open_part(part: PartData, threads: int, count: int) -> "Vectors | Tokens | Terms":
    """What a dual encoder searches: see the classes."""
    match open_inputs(part)["passages"].kind:
        case "term_weights":
            return Terms(part)
        case "token_vectors":
            return Tokens(part, threads)
        case _:
            return Vectors(part, threads, count)


def params_as(kind: type[P], part: PartData) -> P:
    """Those of a part's parameters that are of a kind: it also has those of its vectors."""
    return kind.model_validate({name: part["params"][name] for name in kind.model_fields.keys() & part["params"]})


class Terms:
    """Weights of terms, or what an exact index makes of them, by term and all in memory."""

    def __init__(self, part: PartData) -> None:
        inputs = open_inputs(part)
        opened = open_passages(inputs["passages"], params_as(RetrieveTermsParams, part).index)
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
        inputs, self._open = open_inputs(part), ExitStack()
        self.passages, self.order = Embeddings(inputs["passages"], "passages"), Order(inputs["dataset"])
        if "index" not in inputs:
            self.searcher: Exact | search.Searcher = Exact(self.passages, self.order.ranks, CACHE // count)
        else:
            index = search.Index(inputs["index"], self._open.enter_context(alone(threads)))
            how = params_as(AnnParams, part)
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


class Tokens:
    """Vectors of passages' tokens, all of them or through an index, as the stage `maxsim` searches them."""

    def __init__(self, part: PartData, threads: int) -> None:
        inputs, params, self._open = open_inputs(part), params_as(MaxSimParams, part), ExitStack()
        self.passages, self.order = maxsim.Texts(inputs["passages"], "passages"), Order(inputs["dataset"])
        none = maxsim.OneQuery(np.empty((0, self.passages.dimension)))
        self.search = maxsim.Search(self.passages, none, self.order, params.same_token)
        job = Job("maxsim", Path(), params, inputs, Execution(workers=threads))
        self.searcher = self._open.enter_context(maxsim.searching(job, self.search))
        if isinstance(self.searcher, maxsim.Searcher):
            self.passages.decode = self.searcher.decode

    def answer(self, question: Question) -> Any:
        """As `Vectors.answer`, of a query's `vector` for each token."""
        self.search.set_queries(maxsim.OneQuery(np.array(question["vector"], np.float64)))
        query = np.array([0])
        if "rows" not in question:
            ranks, scores = self.searcher.best(query, question["depth"]).ranked(0)
            return self.order.ids(ranks), scores.tolist()
        rows = np.unique(question["rows"])
        best = Best(1, len(rows))
        self.search.score(best, slice(0, 1), query, rows[self.search.lengths[rows] > 0])
        ranks, scores = best.ranked(0)
        known = dict(zip(self.order.by_rank[ranks].tolist(), scores.tolist(), strict=True))
        return [known.get(row, 0.0) for row in question["rows"]]


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
