"""Search weights of terms in a worker, one query at a time."""

import numpy as np
from scipy.sparse import csr_array

from tandem.contrib.term_weights.term_options import RetrieveTermsParams
from tandem.contrib.term_weights.term_search import open_passages, select_best
from tandem.extras.serving import Searched, Served, served_search
from tandem.retrieval.exact import Array, BestPassages


@served_search("term")
class SearchedTerms(Searched):
    """Weights of terms, or the form that an exact index gives them, stored by term and all in memory.

    A passage that shares no term with the query is not a result.
    """

    def __init__(self, part: Served) -> None:
        super().__init__(part)
        opened = open_passages(part.inputs["passages"], part.params_as(RetrieveTermsParams).index)
        self.inverted, self.temperature = opened.take(0, opened.rows).T.tocsr(), opened.temperature

    def _score(self, vector: list[float], rows: list[int]) -> Array:
        scores: Array = (csr_array(np.array([vector])) @ self.inverted).toarray()[
            0, rows
        ] / self.temperature
        return scores.astype(np.float32)

    def _find_best(self, vector: list[float], depth: int) -> BestPassages:
        best, query = BestPassages(1, depth), csr_array(np.array([vector]))
        best.keys[:] = select_best(query, self.inverted, self.order.ranks, depth, self.temperature)
        return best
