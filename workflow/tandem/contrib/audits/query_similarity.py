"""How similar training queries and others are, by words or by vectors, and the nearest ones, in bounded memory."""

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
from tandem.data.splits import LEARNED, sort_key
from tandem.extras.words import join_folded_words, split_into_terms
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import Array

TRAIN = "train"
# Scores are computed in blocks of this many training queries by this many others: 32 MiB of float64.
TRAIN_BLOCK, OTHERS_BLOCK = 16384, 256
_PAIRS_PER_PART = 4096  # pairs that are scored at once
_PAIRS_PER_CHUNK = 512  # pairs whose vectors stay in the processor's cache
_ROUNDING = 2.0**-24  # float32's unit round-off: half of the last of its 24 bits


@dataclass(frozen=True)
class SplitQueries:
    """The queries of one or several splits, split after split, each in file order."""

    rows: Rows  # row numbers in queries.parquet
    ids: list[str]
    texts: list[str]
    splits: list[str]

    def __len__(self) -> int:
        return len(self.ids)


def read_sides(
    collection: Collection, splits: Sequence[str] | None
) -> tuple[SplitQueries, SplitQueries]:
    """Read the training queries, if any, and those of the named splits, or of all splits that nothing learns from."""
    table = pq.read_table(collection.artifact.path(QUERIES), columns=["query_id", "text", "split"])
    every = table["split"].unique().to_pylist()
    compared = set(every) - LEARNED if splits is None else {*splits}
    others = sorted(compared.intersection(every) - {TRAIN}, key=sort_key)

    def select(names: Sequence[str]) -> SplitQueries:
        """Return the queries of some splits, in the order in which these are named."""
        parts = [np.flatnonzero(np.asarray(pc.equal(table["split"], split))) for split in names]
        rows = np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)
        selected = table.take(rows)
        ids, texts, split_names = (
            selected[name].to_pylist() for name in ("query_id", "text", "split")
        )
        return SplitQueries(rows, ids, texts, split_names)

    return select([TRAIN]), select(others)


def match_same_words(others: SplitQueries, train: SplitQueries) -> tuple[Rows, Rows]:
    """Return pairs with the same words in the same order, whatever their case, width and punctuation.

    The result has positions in `others` and in `train`, each of shape (pairs,), sorted by the first, then the second.
    """
    train_by_words: defaultdict[str, list[int]] = defaultdict(list)
    for position, text in enumerate(train.texts):
        train_by_words[join_folded_words(text)].append(position)

    pairs = []
    for position, text in enumerate(others.texts):
        pairs += [(position, match) for match in train_by_words.get(join_folded_words(text), ())]
    other_positions, train_positions = np.array(pairs, np.int64).reshape(-1, 2).T
    return other_positions, train_positions


class WordCosine:
    """Compares queries by the cosine of TF-IDF vectors (Salton & Buckley 1988).

    cos(q, p) = Σ_t w(t, q) w(t, p), w(t, q) = tf(t, q) · idf(t) / ‖·‖, idf(t) = 1 + ln((1 + n) / (1 + df(t))).
    n and df count the training queries; idf is scikit-learn's smoothed one. Memory: about 12 bytes per distinct word of
    a query, and the words themselves once.
    """

    name = "cosine of TF-IDF vectors of words"

    def __init__(self, others: Iterable[str], train: Iterable[str]) -> None:
        numbers: dict[str, int] = {}  # word → column
        train_counts, other_counts = _count_words(train, numbers), _count_words(others, numbers)

        df = np.bincount(train_counts.indices, minlength=len(numbers))
        idf = 1 + np.log((1 + train_counts.shape[0]) / (1 + df))
        for counts in (train_counts, other_counts):
            counts.resize(counts.shape[0], len(numbers))  # for words that only the other side has
        self.train = _scale_rows_to_unit(sparse.csr_array(train_counts * idf))
        self.others = _scale_rows_to_unit(sparse.csr_array(other_counts * idf))

    def read_columns(self, train: slice) -> Any:
        """Return vectors of training queries as columns."""
        return self.train[train].T.tocsr()

    def score_block(self, others: slice, columns: Any, depth: int, floors: Array) -> Array:
        """Return all similarities of a block, shape (others, train), float32."""
        return np.asarray((self.others[others] @ columns).toarray(), np.float32)

    def score_pairs(self, others: Array, train: Array) -> Array:
        """Return similarities of pairs, shape (pairs,), float32, each a function of its pair only, at most 1."""
        products = self.others[others].multiply(self.train[train]).sum(axis=1)
        return np.asarray(np.minimum(np.asarray(products, np.float64), 1), np.float32)


def _count_words(texts: Iterable[str], numbers: dict[str, int]) -> sparse.csr_array:
    """Return how often each word occurs in each text, float64, shape (texts, words so far); number new words."""
    columns, ends = array("i"), array("q", [0])
    for text in texts:
        columns.extend(numbers.setdefault(term, len(numbers)) for term in split_into_terms(text))
        ends.append(len(columns))

    # Rows of a CSR matrix: a one for each occurrence of a word; sum_duplicates adds them up.
    ones, shape = np.ones(len(columns)), (len(ends) - 1, len(numbers))
    counts = sparse.csr_array((ones, np.array(columns, np.int32), np.array(ends)), shape=shape)
    counts.sum_duplicates()
    return counts


def _scale_rows_to_unit(weighted: sparse.csr_array) -> sparse.csr_array:
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)))
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return sparse.csr_array(weighted * scale[:, None])


class VectorCosine:
    """Compares queries by the cosine of a dual encoder's vectors; negative ones are 0.

    A matrix product in float32 only proposes pairs: its last bits depend on threads and blocks. The similarity that
    counts is summed in float64 in one fixed order and rounded to float32. `others` are ordered split after split.
    """

    name = "cosine of query vectors"

    def __init__(self, others: Sequence[Embeddings], train: Embeddings) -> None:
        self.train = train
        self.others = np.concatenate([scale_to_unit(part.take(0, part.rows)) for part in others])
        # Sums of d products of unit vectors are off by at most d round-offs, both for the cut and for the pair.
        self.margin = 2 * (train.dimension + 8) * _ROUNDING

    def read_columns(self, train: slice) -> Array:
        """Return vectors of training queries, of length 1."""
        return scale_to_unit(self.train.take(train.start, train.stop))

    def score_block(self, others: slice, columns: Array, depth: int, floors: Array) -> Array:
        """Return similarities of pairs that may be among a row's best `depth` and reach its floor, -inf elsewhere.

        Shape (others, train), float32.
        """
        queries = self.others[others]
        products = queries @ columns.T
        row, column = find_contenders(products, depth, floors, self.margin)
        scores = np.full(products.shape, -np.inf, np.float32)
        scores[row, column] = multiply_pairs(queries, columns, row, column)
        return scores

    def score_pairs(self, others: Array, train: Array) -> Array:
        """Return similarities of pairs, shape (pairs,), float32, each a function of its pair only."""
        rows, positions = np.unique(train, return_inverse=True)
        vectors = np.empty((len(rows), self.train.dimension), np.float32)
        for first, block in self.train.iterate_blocks():
            in_block = np.flatnonzero((rows >= first) & (rows < first + len(block)))
            vectors[in_block] = scale_to_unit(np.asarray(block[rows[in_block] - first]))
        return multiply_pairs(self.others, vectors, others, positions)


# similarities in [0, 1] between training queries and others, both given by position
Proposer = WordCosine | VectorCosine


def scale_to_unit(vectors: Array) -> Array:
    """Return vectors of length 1, float32; a vector of zeros stays."""
    wide = vectors.astype(np.float64)
    lengths = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return np.asarray(
        np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0), np.float32
    )


def multiply_pairs(left: Array, right: Array, rows: Array, columns: Array) -> Array:
    """Return the products of unit vectors left[rows[i]] · right[columns[i]], clipped to 0…1, (pairs,), float32."""
    result = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), _PAIRS_PER_CHUNK):
        chunk = slice(start, start + _PAIRS_PER_CHUNK)
        products = np.multiply(left[rows[chunk]], right[columns[chunk]], dtype=np.float64)
        result[chunk] = products.sum(axis=1).clip(0, 1)
    return result


def find_contenders(
    block: Array, depth: int, floors: Array, margin: float = 0.0
) -> tuple[Array, Array]:
    """Return (rows, columns) of the scores in a block that may be among their row's best `depth`, ties included.

    They exceed 0 and the row's floor, each less `margin`, by which scores may be too low. Sorted by row, then column.
    """
    above = block > (np.maximum(floors, 0) - margin)[:, None]
    # true only for the first blocks; a partition is slow
    if np.count_nonzero(above) > 2 * depth * len(block):
        width = min(depth, block.shape[1])
        # The last `width` columns of a partitioned row hold its best scores; the first of these is the lowest of them.
        cut = np.partition(block, block.shape[1] - width, axis=1)[:, -width]
        above &= block >= (cut - margin)[:, None]
    return np.nonzero(above)  # type: ignore[return-value]


def find_nearest(
    proposer: Proposer, others: int, train: int, depth: int, label: str
) -> tuple[Array, Array]:
    """Return the `depth` training queries most similar to each other query; of equal ones the first are taken.

    Pairs of similarity 0 are left out.

    Returns:
        Positions of the other and of the training query, each of shape (pairs,), sorted by the first, then best first.
    """
    scores = np.full((others, depth), -np.inf, np.float32)
    positions = np.full((others, depth), -1, np.int64)
    blocks = [
        slice(start, min(start + OTHERS_BLOCK, others)) for start in range(0, others, OTHERS_BLOCK)
    ]
    with Progress(label, others * train, "pairs") as progress:
        for first in range(0, train, TRAIN_BLOCK):
            columns = proposer.read_columns(slice(first, min(first + TRAIN_BLOCK, train)))
            for rows in blocks:
                block = proposer.score_block(rows, columns, depth, scores[rows, -1])
                scores[rows], positions[rows] = _merge_best(
                    scores[rows], positions[rows], block, first
                )
                progress.add(block.size)
    other, place = np.nonzero(scores > 0)
    return other.astype(np.int64), positions[other, place]


def _merge_best(scores: Array, positions: Array, block: Array, first: int) -> tuple[Array, Array]:
    """Merge a block of scores, whose columns begin at the position `first`, into the best so far.

    Shapes are (others, depth). Blocks come by ascending positions, so that a later equal score never replaces an
    earlier one.
    """
    depth = scores.shape[1]
    other, column = find_contenders(block, depth, scores[:, -1])
    if not len(other):
        return scores, positions

    # The contenders form a ragged list per row: their place in the row is their overall place minus the row's start.
    counts = np.bincount(other, minlength=len(block))
    starts = np.cumsum(counts) - counts
    place = np.arange(len(other)) - np.repeat(starts, counts)
    new_scores = np.full((len(block), int(counts.max())), -np.inf, np.float32)
    new_positions = np.full(new_scores.shape, -1, np.int64)
    new_scores[other, place] = block[other, column]
    new_positions[other, place] = first + column

    both_scores = np.hstack([scores, new_scores])
    both_positions = np.hstack([positions, new_positions])
    best = np.argsort(-both_scores, axis=1, kind="stable")[:, :depth]
    return np.take_along_axis(both_scores, best, axis=1), np.take_along_axis(
        both_positions, best, axis=1
    )


def score_in_parts(proposer: Proposer, others: Array, train: Array) -> Array:
    """Return `proposer.score_pairs` of any number of pairs."""
    scores = [np.empty(0, np.float32)]
    for start in range(0, len(others), _PAIRS_PER_PART):
        part = slice(start, start + _PAIRS_PER_PART)
        scores.append(proposer.score_pairs(others[part], train[part]))
    return np.concatenate(scores)
