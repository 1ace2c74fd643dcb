"""Search by the cosine of TF-IDF vectors of queries and passages, and stage `lsi`, the same in few dimensions.

Terms are those of the stage `bm25s`. With tf a term's frequency in a text (1 + ln(tf) where `sublinear`), N passages,
df of them with the term:

    w_t = tf · ln(N / df)        cosine(q, d) = Σ_t w_t(q) w_t(d) / (‖w(q)‖ ‖w(d)‖)

as in Salton, Wong and Yang (1975). The rows of X are the passages' vectors, with length 1. LSI (Deerwester et al. 1990)
decomposes X ≈ U S Vᵀ by its largest singular values, and compares w(q) V with the rows of X V by their cosine.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress, say
from tandem.config.retrieval import lexical_engine
from tandem.contrib.lexical.bm25s import (
    DTYPE,
    NUMBERS_PER_BLOCK,
    TERMS_NAME,
    VOCABULARY,
    Bm25s,
    Field,
)
from tandem.contrib.lexical.options import LsiParams, TfIdf
from tandem.data.columns import Floats, Floats64
from tandem.errors import UserError
from tandem.models.ragged import Ragged
from tandem.stages.data import Bm25Variant
from tandem.store.job import Job, writing

IDF = "idf.npy"
DIRECTIONS = "directions.npy"
PASSAGES = "passages.npy"
START_SEED = 0  # of the vector from which the iteration for singular values starts
# Directions are float32, so that rounding leaves something of a vector of length 1 that is orthogonal to all of them;
# what is left is shorter than this.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Weighting:
    """Weigh terms, which are given by their numbers, by TF-IDF."""

    idf: Floats64
    sublinear: bool

    def weigh(self, counts: Any) -> Any:
        """Return vectors of length 1 from texts' counts of terms, both SciPy matrices with a row per text; float64.

        A text without terms, or with only terms that all passages have, stays a row of zeros.
        """
        weights = counts.astype(np.float64)
        if self.sublinear:
            weights.data = 1 + np.log(weights.data)
        weights.data *= self.idf[weights.indices]
        squares = np.asarray(weights.multiply(weights).sum(axis=1)).ravel()
        lengths = np.sqrt(np.where(squares > 0, squares, 1))
        weights.data /= np.repeat(lengths, np.diff(weights.indptr))
        return weights

    def weigh_query(self, numbers: list[int]) -> Any:
        """Return the vector of a query's terms, which may repeat, shape (1, terms)."""
        from scipy import sparse

        rows = np.zeros(len(numbers), np.int64)
        columns = np.array(numbers, np.int64)
        counts = sparse.csr_matrix(
            (np.ones(len(numbers)), (rows, columns)), shape=(1, len(self.idf))
        )
        counts.sum_duplicates()
        return self.weigh(counts)


def count_terms(terms: Ragged, vocabulary: int) -> Iterator[Any]:
    """Yield the counts of terms of passages, in blocks: SciPy matrices with a row per passage."""
    field = Field(terms, 1.0, 0.0)  # with b = 0, lengths do not count
    for start in range(0, len(terms), NUMBERS_PER_BLOCK):
        stop = min(start + NUMBERS_PER_BLOCK, len(terms))
        yield field.frequencies(slice(start, stop), vocabulary)


def inverse_frequencies(terms: Ragged, vocabulary: int) -> Floats64:
    """Return ln(N / df) of each term by its number, float64."""
    df = np.zeros(vocabulary, np.int64)
    for counts in count_terms(terms, vocabulary):
        df += np.bincount(counts.indices, minlength=vocabulary)
    frequencies: Floats64 = np.log(len(terms) / df)
    return frequencies


def run(job: Job[LsiParams]) -> None:
    """Find the directions with the largest singular values for the passages of the input `bm25s`; project passages.

    Writes idf.npy, directions.npy (a row per term) and passages.npy (a row of length 1 per passage); the latter two are
    float32. Memory: 12 bytes for each distinct term of each passage, and 16 · `dimensions` bytes for each term or
    passage, whichever are fewer.

    Raises:
        UserError: there are not more passages, or terms, than dimensions; or all passages have the same terms.
    """
    from scipy import sparse
    from scipy.sparse.linalg import svds
    from threadpoolctl import threadpool_limits

    index = job.inputs["bm25s"]
    dimensions = job.params.dimensions
    terms = Ragged.open(index.folder, TERMS_NAME, DTYPE)
    vocabulary = len(json.loads(index.path(VOCABULARY).read_text(encoding="utf-8")))
    if dimensions >= min(len(terms), vocabulary):
        has = f"{index.folder} has {len(terms):,} passages and {vocabulary:,} terms"
        raise UserError(f"lsi: dimensions is {dimensions}, but {has}; fewer dimensions are allowed")
    weighting = Weighting(inverse_frequencies(terms, vocabulary), job.params.sublinear)
    if not weighting.idf.any():
        same = f"every term of {index.folder} is in all of its {len(terms):,} passages"
        raise UserError(f"lsi: {same}, so that all weigh 0; use bm25")
    with writing(job) as draft, Progress(f"lsi {job.key}", len(terms), "passages") as progress:
        matrix = sparse.vstack(
            [weighting.weigh(counts) for counts in count_terms(terms, vocabulary)], format="csr"
        )
        # a fixed start, since SciPy's own differs from process to process
        start = np.random.default_rng(START_SEED).standard_normal(min(matrix.shape))
        # sums by BLAS depend on the number of its threads
        with threadpool_limits(1, "blas"):
            _, values, transposed = svds(matrix, dimensions, v0=start, return_singular_vectors="vh")
        directions = np.ascontiguousarray(transposed[::-1].T, np.float32)
        vectors = np.lib.format.open_memmap(
            draft.path(PASSAGES), "w+", np.float32, (len(terms), dimensions)
        )
        for first in range(0, len(terms), NUMBERS_PER_BLOCK):
            rows = matrix[first : first + NUMBERS_PER_BLOCK] @ directions.astype(np.float64)
            vectors[first : first + NUMBERS_PER_BLOCK] = unit_rows(rows)
            progress.add(len(rows))
        vectors.flush()
        np.save(draft.path(IDF), weighting.idf)
        np.save(draft.path(DIRECTIONS), directions)
        kept = float((values**2).sum() / matrix.multiply(matrix).sum())
        say(f"lsi {job.key} · {dimensions} dimensions keep {kept:.1%} of the vectors' squares")
        draft.facts |= {"passages": len(terms), "terms": vocabulary, "squares_kept": round(kept, 4)}


def unit_rows(rows: Floats64) -> Floats64:
    """Return rows scaled to length 1; rows that consist only of rounding errors become zeros."""
    lengths = np.sqrt(np.einsum("pd,pd->p", rows, rows))[:, None]
    seen = lengths > ROUNDING
    result: Floats64 = np.where(seen, rows, 0) / np.where(seen, lengths, 1)
    return result


class VectorSpace(Bm25s):
    """Search by cosines in the input `bm25s` of a job; for LSI, also in the input `lsi`.

    Only passages with a positive cosine are results.
    """

    def __init__(self, job: Job[Any]) -> None:
        super().__init__(job)
        params: Bm25Variant = job.params
        assert isinstance(params.similarity, TfIdf)
        self.sublinear = params.similarity.sublinear
        self.lsi = job.inputs.get("lsi")

    def scores(self, k1: float, b: float) -> Any:
        """Return an object that computes the cosines of all passages with a query; k1 and b have no effect."""
        if self.lsi:
            idf = np.load(self.lsi.path(IDF), allow_pickle=False)
            return LatentScores(Weighting(idf, self.sublinear), self.lsi.folder)
        terms = Ragged.open(self.folder, TERMS_NAME, DTYPE)
        idf = inverse_frequencies(terms, len(self.vocab))
        return CosineScores(terms, Weighting(idf, self.sublinear))


@lexical_engine("bm25s")
def open_bm25s(job: Job[Any]) -> Bm25s:
    """Open the input `bm25s` of a job to search by BM25 or by a cosine."""
    return VectorSpace(job) if job.params.similarity else Bm25s(job)


class CosineScores:
    """The weight of every term in every passage that has it, in passages' vectors of length 1.

    Memory: 8 bytes per weight, three times as much during the computation.
    """

    def __init__(self, terms: Ragged, weighting: Weighting) -> None:
        from scipy import sparse

        self.weighting = weighting
        self.passages = len(terms)
        blocks = [
            weighting.weigh(counts).astype(np.float32)
            for counts in count_terms(terms, len(weighting.idf))
        ]
        self.columns: Any = sparse.vstack(blocks, format="csc")

    def get_scores_from_ids(self, numbers: list[int]) -> Floats:
        """Return the cosines of all passages with a query's terms: float32, shape (passages,)."""
        query = self.weighting.weigh_query(numbers)
        scores = np.zeros(self.passages)
        for number, weight in zip(query.indices.tolist(), query.data.tolist(), strict=True):
            begin, end = self.columns.indptr[number : number + 2]
            scores[self.columns.indices[begin:end]] += weight * self.columns.data[begin:end]
        return scores.astype(np.float32)


class LatentScores:
    """Passages and terms in few dimensions, memory-mapped."""

    def __init__(self, weighting: Weighting, folder: Path) -> None:
        self.weighting = weighting
        self.directions = np.load(folder / DIRECTIONS, mmap_mode="r", allow_pickle=False)
        self.passages = np.load(folder / PASSAGES, mmap_mode="r", allow_pickle=False)

    def get_scores_from_ids(self, numbers: list[int]) -> Floats:
        """Return the cosines of all passages with a query's terms: float32, shape (passages,)."""
        query = self.weighting.weigh_query(numbers)
        vector = query.data @ self.directions[query.indices].astype(np.float64)
        [unit] = unit_rows(vector[None])
        # without BLAS, whose sums depend on its threads: equal passages must tie
        scores: Floats = np.einsum("pd,d->p", self.passages, unit.astype(np.float32))
        return scores
