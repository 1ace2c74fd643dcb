"""How similar training queries and others are, by words or by vectors, and which are nearest, in bounded memory."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from tandem.cluster.progress import Progress
from tandem.data.collection import QUERIES, Collection
from tandem.data.rows import Rows
from tandem.data.splits import sort_key
from tandem.extras.words import normal, terms
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array

TRAIN = "train"
# Scores are computed in blocks of so many training queries by so many others: 32 MiB of float64.
TRAIN_BLOCK, OTHERS_BLOCK = 16384, 256
PAIRS = 4096  # pairs scored at once
CHUNK = 512  # pairs whose vectors stay in the processor's cache
ROUNDING = 2.0**-24  # float32's unit round-off


@dataclass(frozen=True)
class Queries:
    """Queries of one or several splits, split after split, each in file order."""

    rows: Rows  # in queries.parquet
    ids: list[str]
    texts: list[str]
    splits: list[str]

    def __len__(self) -> int:
        return len(self.ids)


def read_sides(collection: Collection, splits: Sequence[str] | None) -> tuple[Queries, Queries]:
    """The training queries, perhaps none, and the queries of the other splits, of all or of the named ones."""
    table = pq.read_table(collection.artifact.path(QUERIES), columns=["query_id", "text", "split"])
    every = table["split"].unique().to_pylist()
    others = sorted((split for split in every if split != TRAIN and split in (splits or every)), key=sort_key)

    def of(names: Sequence[str]) -> Queries:
        parts = [np.flatnonzero(np.asarray(pc.equal(table["split"], split))) for split in names]
        rows = np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)
        return Queries(rows, *(column.to_pylist() for column in table.take(rows).columns))

    return of([TRAIN]), of(others)


def same(others: Queries, train: Queries) -> tuple[Rows, Rows]:
    """Pairs with the same words in the same order, whatever their case, width and punctuation.

    Positions in `others` and in `train`, each of shape (pairs,), by the first and then the second.
    """
    by_words: defaultdict[str, list[int]] = defaultdict(list)
    for at, text in enumerate(train.texts):
        by_words[normal(text)].append(at)
    pairs = [(at, other) for at, text in enumerate(others.texts) for other in by_words.get(normal(text), ())]
    rows, train_rows = np.array(pairs, np.int64).reshape(-1, 2).T
    return rows, train_rows


class WordCosine:
    """Cosine of TF-IDF vectors (Salton & Buckley 1988).

    cos(q, p) = Σ_t w(t, q) w(t, p), w(t, q) = tf(t, q) · idf(t) / ‖·‖, idf(t) = 1 + ln((1 + n) / (1 + df(t))).
    n and df count the training queries; idf is the smoothed one of scikit-learn. About 12 bytes a distinct word of a
    query, and the words themselves once.
    """

    name = "cosine of TF-IDF vectors of words"

    def __init__(self, others: Iterable[str], train: Iterable[str]) -> None:
        numbers: dict[str, int] = {}
        counts = [_count(texts, numbers) for texts in (train, others)]
        df = np.bincount(counts[0].indices, minlength=len(numbers))
        idf = 1 + np.log((1 + counts[0].shape[0]) / (1 + df))
        for part in counts:
            part.resize(part.shape[0], len(numbers))
        self.train, self.others = (_unit_rows(sparse.csr_array(part * idf)) for part in counts)

    def columns(self, train: slice) -> Any:
        """Vectors of training queries as columns."""
        return self.train[train].T.tocsr()

    def block(self, others: slice, columns: Any, depth: int, floors: Array) -> Array:
        """All similarities of a block, shape (others, train), float32."""
        return np.asarray((self.others[others] @ columns).toarray(), np.float32)

    def pairs(self, others: Array, train: Array) -> Array:
        """Similarities of pairs, shape (pairs,), float32, functions of the pair alone; rounding may not exceed 1."""
        products = self.others[others].multiply(self.train[train]).sum(axis=1)
        return np.asarray(np.minimum(np.asarray(products, np.float64), 1), np.float32)


def _count(texts: Iterable[str], numbers: dict[str, int]) -> sparse.csr_array:
    """How often each word stands in each text, float64, shape (texts, words so far); new words get the next number."""
    columns, ends = array("i"), array("q", [0])
    for text in texts:
        columns.extend(numbers.setdefault(term, len(numbers)) for term in terms(text))
        ends.append(len(columns))
    shape = (len(ends) - 1, len(numbers))
    counts = sparse.csr_array((np.ones(len(columns)), np.array(columns, np.int32), np.array(ends)), shape=shape)
    counts.sum_duplicates()
    return counts


def _unit_rows(weighted: sparse.csr_array) -> sparse.csr_array:
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)))
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return sparse.csr_array(weighted * scale[:, None])


class VectorCosine:
    """Cosine of a dual encoder's query vectors, 0 where it is negative; `others` are split after split.

    A matrix product in float32 only proposes: its last bits depend on threads and blocks. The similarity that counts is
    summed in float64 in one fixed order and rounded to float32.
    """

    name = "cosine of query vectors"

    def __init__(self, others: Sequence[Embeddings], train: Embeddings) -> None:
        self.train = train
        self.others = np.concatenate([unit(part.take(0, part.rows)) for part in others])
        # Sums of d products of unit vectors: each is off by at most d round-offs, the cut and the pair beside it.
        self.margin = 2 * (train.dimension + 8) * ROUNDING

    def columns(self, train: slice) -> Array:
        """Vectors of training queries, of length 1."""
        return unit(self.train.take(train.start, train.stop))

    def block(self, others: slice, columns: Array, depth: int, floors: Array) -> Array:
        """Similarities of what may be among the best `depth` of a row and reach its floor, -inf elsewhere.

        Shape (others, train), float32.
        """
        queries = self.others[others]
        products = queries @ columns.T
        row, column = reaching(products, depth, floors, self.margin)
        scores = np.full(products.shape, -np.inf, np.float32)
        scores[row, column] = cosines(queries, columns, row, column)
        return scores

    def pairs(self, others: Array, train: Array) -> Array:
        """Similarities of pairs, shape (pairs,), float32, functions of the pair alone."""
        rows, at = np.unique(train, return_inverse=True)
        vectors = np.empty((len(rows), self.train.dimension), np.float32)
        for first, block in self.train.iterate_blocks():
            here = np.flatnonzero((rows >= first) & (rows < first + len(block)))
            vectors[here] = unit(np.asarray(block[rows[here] - first]))
        return cosines(self.others, vectors, others, at)


Proposer = WordCosine | VectorCosine  # similarities in [0, 1] of training queries and others, both by position


def unit(vectors: Array) -> Array:
    """Vectors of length 1, float32; a vector of zeros stays."""
    wide = vectors.astype(np.float64)
    lengths = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0), np.float32)


def cosines(left: Array, right: Array, rows: Array, columns: Array) -> Array:
    """Products of unit vectors left[rows[i]] · right[columns[i]], between 0 and 1, shape (pairs,), float32."""
    result = np.empty(len(rows), np.float32)
    for at in (slice(i, i + CHUNK) for i in range(0, len(rows), CHUNK)):
        products = np.multiply(left[rows[at]], right[columns[at]], dtype=np.float64)
        result[at] = products.sum(axis=1).clip(0, 1)
    return result


def reaching(block: Array, depth: int, floors: Array, margin: float = 0.0) -> tuple[Array, Array]:
    """(rows, columns) of the scores in a block that may be among their row's best `depth`, ties with the last included.

    They exceed 0 and the row's floor, each less `margin`, by which scores may be too low. Sorted by row, then column.
    """
    above = block > (np.maximum(floors, 0) - margin)[:, None]
    if np.count_nonzero(above) > 2 * depth * len(block):  # only the first blocks: a partition is slow
        width = min(depth, block.shape[1])
        cut = np.partition(block, block.shape[1] - width, axis=1)[:, -width]
        above &= block >= (cut - margin)[:, None]
    return np.nonzero(above)  # type: ignore[return-value]


def nearest(proposer: Proposer, others: int, train: int, depth: int, label: str) -> tuple[Array, Array]:
    """The `depth` training queries most similar to each other query, of equal ones the first, none of similarity 0.

    Positions of the other and of the training query, each of shape (pairs,), by the first and then the best first.
    """
    scores, rows = np.full((others, depth), -np.inf, np.float32), np.full((others, depth), -1, np.int64)
    blocks = [slice(at, min(at + OTHERS_BLOCK, others)) for at in range(0, others, OTHERS_BLOCK)]
    with Progress(label, others * train, "pairs") as progress:
        for first in range(0, train, TRAIN_BLOCK):
            columns = proposer.columns(slice(first, min(first + TRAIN_BLOCK, train)))
            for at in blocks:
                block = proposer.block(at, columns, depth, scores[at, -1])
                scores[at], rows[at] = _best(scores[at], rows[at], block, first)
                progress.add(block.size)
    other, place = np.nonzero(scores > 0)
    return other.astype(np.int64), rows[other, place]


def _best(scores: Array, rows: Array, block: Array, first: int) -> tuple[Array, Array]:
    """Merge a block of scores, whose columns begin at the row `first`, into the best so far, shape (others, depth).

    Blocks come by ascending rows, so that a later equal never takes an earlier one's place.
    """
    depth = scores.shape[1]
    other, column = reaching(block, depth, scores[:, -1])
    if not len(other):
        return scores, rows
    counts = np.bincount(other, minlength=len(block))
    place = np.arange(len(other)) - np.repeat(np.cumsum(counts) - counts, counts)
    new = np.full((len(block), int(counts.max())), -np.inf, np.float32)
    new_rows = np.full(new.shape, -1, np.int64)
    new[other, place], new_rows[other, place] = block[other, column], first + column
    both, both_rows = np.hstack([scores, new]), np.hstack([rows, new_rows])
    order = np.argsort(-both, axis=1, kind="stable")[:, :depth]
    return np.take_along_axis(both, order, axis=1), np.take_along_axis(both_rows, order, axis=1)


def in_parts(proposer: Proposer, others: Array, train: Array) -> Array:
    """`proposer.pairs` of any number of pairs."""
    parts = [proposer.pairs(others[i : i + PAIRS], train[i : i + PAIRS]) for i in range(0, len(others), PAIRS)]
    return np.concatenate([np.empty(0, np.float32), *parts])
