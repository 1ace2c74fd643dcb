"""BM25F with a b for each field (Zaragoza et al., TREC 2004), on the numbered terms of the stage `bm25s`.

With tf_f a term's frequency in a field of |d|_f terms, mean |d|_f over all passages, a field's weight w_f and b_f:

    c = Σ_f w_f tf_f / (1 - b_f + b_f |d|_f / mean |d|_f)
    score = ln(1 + (N - df + 1/2) / (df + 1/2)) · c / (k1 + c), summed over the query's terms,

where df of the N passages have the term in a field that is searched.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.data.columns import Floats
from tandem.models.ragged import Ragged

ROWS = 1 << 16  # passages, and then terms, whose numbers are in float64 at a time


class Field(NamedTuple):
    """A field of all passages: its numbered terms, a row for each passage, its weight and its b."""

    rows: Ragged
    weight: float
    b: float

    def factors(self) -> NDArray[np.float64]:
        """What the frequencies in each passage's field are multiplied by, shape (passages,)."""
        lengths = np.diff(self.rows.offsets).astype(np.float64)
        ratios = 1 - self.b + self.b * lengths / max(lengths.mean(), 1e-9)
        factors: NDArray[np.float64] = np.divide(self.weight, ratios, out=np.zeros_like(ratios), where=lengths > 0)
        return factors


class FieldScores:
    """Scores of every term in every passage that has it: 8 bytes each, three times as much while they are made.

    Args:
        fields: those that are searched.
        terms: how many different terms there are.
    """

    def __init__(self, fields: Sequence[Field], terms: int, k1: float) -> None:
        from scipy import sparse

        self.passages = len(fields[0].rows)
        factors = [field.factors() for field in fields]
        blocks = []
        for start in range(0, self.passages, ROWS):
            span = slice(start, min(start + ROWS, self.passages))
            parts = (_frequencies(field.rows, of[span], span, terms) for field, of in zip(fields, factors, strict=True))
            blocks.append(sum(parts).astype(np.float32))
        self.columns: Any = sparse.vstack(blocks, format="csc")
        df = np.diff(self.columns.indptr)
        idf = np.log1p((self.passages - df + 0.5) / (df + 0.5))
        for start in range(0, terms, ROWS):
            bounds = self.columns.indptr[start : start + ROWS + 1]
            c = self.columns.data[bounds[0] : bounds[-1]].astype(np.float64)
            scores = np.repeat(idf[start : start + ROWS], np.diff(bounds)) * c / (k1 + c)
            self.columns.data[bounds[0] : bounds[-1]] = scores

    def get_scores_from_ids(self, numbers: list[int]) -> Floats:
        """Scores of all passages for a query's terms, of which one may repeat: float32, shape (passages,)."""
        scores = np.zeros(self.passages, np.float32)
        for number in numbers:
            begin, end = self.columns.indptr[number : number + 2]
            scores[self.columns.indices[begin:end]] += self.columns.data[begin:end]
        return scores


def _frequencies(rows: Ragged, factors: NDArray[np.float64], span: slice, terms: int) -> Any:
    """A field's frequencies of the terms of some passages, each times its passage's factor: a matrix of SciPy's."""
    from scipy import sparse

    bounds = np.asarray(rows.offsets[span.start : span.stop + 1])
    ids = np.array(rows.ids[bounds[0] : bounds[-1]])
    data = np.repeat(factors, np.diff(bounds))
    matrix = sparse.csr_matrix((data, ids, bounds - bounds[0]), shape=(len(factors), terms))
    matrix.sum_duplicates()
    return matrix
