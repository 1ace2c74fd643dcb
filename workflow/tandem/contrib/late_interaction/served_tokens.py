"""Search stored vectors of tokens in a worker, one query at a time."""

from pathlib import Path

import numpy as np

from tandem.config.settings import Execution
from tandem.contrib.late_interaction.maxsim import (
    MappedTexts,
    OneQuery,
    TokenSearch,
    TokenSearcher,
    open_token_search,
)
from tandem.contrib.late_interaction.options import MaxSimParams
from tandem.extras.serving import WORKER_THREADS, Searched, Served, served_search
from tandem.retrieval.exact import Array, BestPassages
from tandem.store.job import Job


@served_search("token")
class SearchedTokens(Searched):
    """Search vectors of passages' tokens, in all passages or through an index, as the stage `maxsim` does."""

    def __init__(self, part: Served) -> None:
        super().__init__(part)
        params = part.params_as(MaxSimParams)
        self.passages = MappedTexts(part.inputs["passages"], "passages")
        none = OneQuery(np.empty((0, self.passages.dimension)))
        self.search = TokenSearch(self.passages, none, self.order, params.same_token)
        job = Job("maxsim", Path(), params, part.inputs, Execution(workers=WORKER_THREADS))
        self.searcher = self._open.enter_context(open_token_search(job, self.search))
        if isinstance(self.searcher, TokenSearcher):
            self.passages.decode = self.searcher.decode

    def _score(self, vector: list[list[float]], rows: list[int]) -> Array:
        self.search.set_queries(OneQuery(np.array(vector, np.float64)))
        best = BestPassages(1, len(rows))
        known = np.unique(rows)
        with_tokens = known[self.search.lengths[known] > 0]
        self.search.score(best, slice(0, 1), np.array([0]), with_tokens)
        ranks, scores = best.rank(0)
        by_row = dict(zip(self.order.by_rank[ranks].tolist(), scores.tolist(), strict=True))
        return np.array([by_row.get(row, 0.0) for row in rows])  # without tokens: 0

    def _find_best(self, vector: list[list[float]], depth: int) -> BestPassages:
        self.search.set_queries(OneQuery(np.array(vector, np.float64)))
        return self.searcher.search(np.array([0]), depth)
