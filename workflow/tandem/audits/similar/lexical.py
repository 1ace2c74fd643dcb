"""Similarity of queries by their words: the cosine of TF-IDF vectors (Salton & Buckley 1988)."""

from array import array
from collections.abc import Iterable

import numpy as np
from scipy import sparse

from tandem.audits.similar.nearest import Array
from tandem.audits.similar.words import terms


class WordCosine:
    """cos(q, p) = Σ_t w(t, q) w(t, p), w(t, q) = tf(t, q) · idf(t) / ‖·‖, idf(t) = 1 + ln((1 + n) / (1 + df(t))).

    n and df count the training queries; idf is the smoothed one of scikit-learn. About 12 bytes a distinct word of a
    query, and the words themselves once.
    """

    name = "cosine of TF-IDF vectors of words"

    def __init__(self, others: Iterable[str], train: Iterable[str]) -> None:
        numbers: dict[str, int] = {}
        counts = [_count(texts, numbers) for texts in (train, others)]
        for part in counts:
            part.resize(part.shape[0], len(numbers))
        df = np.bincount(counts[0].indices, minlength=len(numbers))
        idf = 1 + np.log((1 + counts[0].shape[0]) / (1 + df))
        self.train, self.others = (_unit(part, idf) for part in counts)
        self._columns: tuple[slice, sparse.csr_array] | None = None

    def block(self, others: slice, train: slice, depth: int, floors: Array) -> Array:
        """All similarities of a block, float32."""
        if self._columns is None or self._columns[0] != train:
            self._columns = train, self.train[train].T.tocsr()
        made: Array = (self.others[others] @ self._columns[1]).toarray().astype(np.float32)
        return made

    def pairs(self, others: Array, train: Array) -> Array:
        """Similarities of pairs, float32; rounding may not exceed 1."""
        products = self.others[others].multiply(self.train[train]).sum(axis=1)
        made: Array = np.minimum(np.asarray(products, np.float64), 1).astype(np.float32)
        return made


def _count(texts: Iterable[str], numbers: dict[str, int]) -> sparse.csr_array:
    """How often each word stands in each text, float64, shape (texts, words so far); new words get the next number."""
    columns, ends = array("i"), array("q", [0])
    for text in texts:
        columns.extend(numbers.setdefault(term, len(numbers)) for term in terms(text))
        ends.append(len(columns))
    shape = (len(ends) - 1, len(numbers))
    made = sparse.csr_array((np.ones(len(columns)), np.array(columns, np.int32), np.array(ends)), shape=shape)
    made.sum_duplicates()
    return made


def _unit(counts: sparse.csr_array, idf: Array) -> sparse.csr_array:
    """Rows weighted and scaled to length 1; a text without words stays 0."""
    weighted = sparse.csr_array(counts * idf)
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)))
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return sparse.csr_array(weighted * scale[:, None])
