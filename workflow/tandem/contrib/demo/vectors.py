"""Search over built embeddings in a worker, one query at a time: exact, or through an index."""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from scipy.sparse import csr_array

from tandem.config.settings import Execution
from tandem.contrib.demo.workers import WORKER_THREADS, PartQuestion, Served
from tandem.data.rows import PassageOrder
from tandem.retrieval import ann, maxsim
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array, BestPassages, score_vector_pairs
from tandem.retrieval.faiss_search import BlockSearch, open_threads
from tandem.retrieval.term_weights import open_passages, select_best
from tandem.stages import declaration
from tandem.stages.retrieval import AnnParams, MaxSimParams, RetrieveTermsParams
from tandem.store.job import Job

CACHE = 2 << 30  # bytes of blocks that stay ready
PER_VALUE = 4  # bytes of a value of a block that is ready


def open_searched(part: Served) -> "Searched":
    """Open the passages that a dual encoder searches."""
    searched: dict[str, type[Searched]] = {
        "term": SearchedTerms,
        "token": SearchedTokens,
        "text": SearchedVectors,
    }
    return searched[declaration(part.inputs["passages"].kind).vectors](part)


class Searched(ABC):
    """Passages as a dual encoder searches them, by the `vector` that it makes of a query."""

    def __init__(self, part: Served) -> None:
        self.order, self._open = PassageOrder(part.inputs["dataset"]), ExitStack()

    def answer(self, question: PartQuestion) -> Any:
        """With `rows`: their scores for the query's `vector`; with `depth`: (ids, scores) of the best passages."""
        if "rows" in question:
            return self._scores(question["vector"], question["rows"]).tolist()
        ranks, scores = self._best(
            question["vector"], min(question["depth"], len(self.order.ranks))
        ).rank(0)
        return self.order.ids(ranks), scores.tolist()

    @abstractmethod
    def _scores(self, vector: Any, rows: list[int]) -> Array: ...

    @abstractmethod
    def _best(self, vector: Any, depth: int) -> BestPassages: ...


class SearchedTerms(Searched):
    """Weights of terms, or what an exact index makes of them, by term and all in memory.

    A passage that shares no term with the query is not found.
    """

    def __init__(self, part: Served) -> None:
        super().__init__(part)
        opened = open_passages(part.inputs["passages"], part.params_as(RetrieveTermsParams).index)
        self.inverted, self.temperature = opened.take(0, opened.rows).T.tocsr(), opened.temperature

    def _scores(self, vector: list[float], rows: list[int]) -> Array:
        scores: Array = (csr_array(np.array([vector])) @ self.inverted).toarray()[
            0, rows
        ] / self.temperature
        return scores.astype(np.float32)

    def _best(self, vector: list[float], depth: int) -> BestPassages:
        best, query = BestPassages(1, depth), csr_array(np.array([vector]))
        best.keys[:] = select_best(query, self.inverted, self.order.ranks, depth, self.temperature)
        return best


class SearchedVectors(Searched):
    """Embeddings of passages: searched through an index, or block by block as the stage `retrieve` does.

    The searchers of blocks that fit into a part's share of `CACHE` are kept; other blocks are mapped from disk for each
    query.
    """

    def __init__(self, part: Served) -> None:
        faiss.omp_set_num_threads(WORKER_THREADS)
        super().__init__(part)
        self.passages = Embeddings(part.inputs["passages"], "passages")
        self.index: ann.VectorSearcher | None = None
        self.ready: list[BlockSearch] = []
        if "index" in part.inputs:
            index = ann.OpenedIndex(
                part.inputs["index"], self._open.enter_context(open_threads(WORKER_THREADS))
            )
            how = part.params_as(AnnParams)
            index.tune(how.nprobe, how.ef_search)
            self.index = ann.VectorSearcher(
                index, self.passages, self.order.ranks, how.rescore, how.rescore_factor
            )
        else:
            block = PER_VALUE * self.passages.dimension * self.passages.size  # bytes
            fitting = CACHE // part.count // block
            self.ready = [self._block(number) for number in range(min(fitting, len(self.passages)))]

    def _block(self, number: int) -> BlockSearch:
        first, vectors = number * self.passages.size, self.passages.read_block(number)
        return BlockSearch(
            vectors, self.order.ranks[first : first + len(vectors)], self.passages.temperature
        )

    def _scores(self, vector: list[float], rows: list[int]) -> Array:
        passages = self.passages.pick(rows)
        queries = np.repeat(np.array([vector], np.float32), len(passages), axis=0)
        return score_vector_pairs(queries, passages, self.passages.temperature)

    def _best(self, vector: list[float], depth: int) -> BestPassages:
        query = np.array([vector], np.float32)
        if self.index:
            return self.index.search(query, depth)
        best, at = BestPassages(1, depth), slice(0, 1)
        for number in range(len(self.passages)):
            block = self.ready[number] if number < len(self.ready) else self._block(number)
            best.add(at, block.candidates(query, depth, best.find_floors(at)))
        return best


class SearchedTokens(Searched):
    """Vectors of passages' tokens, all of them or through an index, as the stage `maxsim` searches them."""

    def __init__(self, part: Served) -> None:
        super().__init__(part)
        self.passages, params = (
            maxsim.MappedTexts(part.inputs["passages"], "passages"),
            part.params_as(MaxSimParams),
        )
        none = maxsim.OneQuery(np.empty((0, self.passages.dimension)))
        self.search = maxsim.TokenSearch(self.passages, none, self.order, params.same_token)
        job = Job("maxsim", Path(), params, part.inputs, Execution(workers=WORKER_THREADS))
        self.searcher = self._open.enter_context(maxsim.open_token_search(job, self.search))
        if isinstance(self.searcher, maxsim.TokenSearcher):
            self.passages.decode = self.searcher.decode

    def _scores(self, vector: list[list[float]], rows: list[int]) -> Array:
        self.search.set_queries(maxsim.OneQuery(np.array(vector, np.float64)))
        best, known = BestPassages(1, len(rows)), np.unique(rows)
        self.search.score(best, slice(0, 1), np.array([0]), known[self.search.lengths[known] > 0])
        ranks, scores = best.rank(0)
        by_row = dict(zip(self.order.by_rank[ranks].tolist(), scores.tolist(), strict=True))
        return np.array([by_row.get(row, 0.0) for row in rows])  # without tokens: 0

    def _best(self, vector: list[list[float]], depth: int) -> BestPassages:
        self.search.set_queries(maxsim.OneQuery(np.array(vector, np.float64)))
        return self.searcher.search(np.array([0]), depth)
