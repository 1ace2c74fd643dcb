"""Hold training lists, a step's batch of them, and the known positives, in arrays; a list is a query with passages."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandem.data.columns import DatasetNames
from tandem.data.tables import open_parquet
from tandem.errors import UserError
from tandem.models.ragged import Ids, Ragged, join_ranges, sum_lengths

_ROWS_PER_BATCH = 1 << 20  # rows of a candidates.parquet that are read at once
# A pair (query row, passage row) is stored as one integer: the passage in the lowest bits, the query above them.
_PASSAGE_BITS = 32
_PASSAGE_MASK = (1 << _PASSAGE_BITS) - 1


@dataclass(frozen=True)
class Lists:
    """Hold all training lists: `passages[offsets[i]:offsets[i + 1]]` belong to list i, its positives first.

    Attributes:
        queries: row of each list's query in queries.parquet, shape (lists,).
        offsets: where each list begins in `passages`, and the end of the last one, shape (lists + 1,).
        positives: number of positives of each list, shape (lists,).
        passages: rows in corpus.parquet, int32, shape (rows,).
        scores: a teacher's scores of the passages, float32, NaN where it has none, same shape; None without a teacher.
    """

    queries: Ids
    offsets: Ids
    positives: Ids
    passages: Ids
    scores: Ids | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def list_positives(self) -> tuple[Ids, Ids]:
        """Return query row and passage row of every positive."""
        places = join_ranges(self.offsets[:-1], self.positives)
        return np.repeat(self.queries, self.positives), self.passages[places]

    def select(self, indices: Ids) -> "Lists":
        """Return some of the lists, in this order."""
        sizes = np.diff(self.offsets)[indices]
        rows = join_ranges(self.offsets[indices], sizes)
        scores = None if self.scores is None else self.scores[rows]
        return Lists(
            self.queries[indices],
            sum_lengths(sizes),
            self.positives[indices],
            self.passages[rows],
            scores,
        )

    def pair_rows(self, start: int, stop: int) -> tuple[Ids, Ids]:
        """Return the query row and the passage row of every row from start to stop, which may span several lists."""
        owners = np.searchsorted(self.offsets, np.arange(start, stop), side="right") - 1
        return self.queries[owners], self.passages[start:stop]


def read_lists(path: Path, scores: Path | None = None) -> Lists:
    """Read the lists of a candidates.parquet, in which the rows of a list are adjacent, its positives first.

    Memory: 4 bytes a row; 500,000 lists of 128 passages take 0.3 GB. A teacher's scores are memory-mapped.

    Raises:
        UserError: there is no list, a list's positives do not come first, or scores and rows differ in number.
    """
    starts = []
    queries = []
    positive_rows = []
    last_key = -1
    row = 0
    with open_parquet(path) as file:
        passages = np.empty(file.metadata.num_rows, np.int32)
        for batch in file.iter_batches(
            _ROWS_PER_BATCH, columns=["query_row", "passage_row", "label", "list"]
        ):
            query, passage, label = (batch.column(i).to_numpy().astype(np.int64) for i in range(3))
            denoised = np.asarray(pc.equal(batch.column(3), "denoised"))
            # A query may have two lists, one denoised and one not: the lowest bit of a list's key distinguishes them.
            keys = query << 1 | denoised
            first_rows = np.flatnonzero(np.diff(keys, prepend=last_key))
            starts.append(row + first_rows)
            queries.append(query[first_rows])
            positive_rows.append(row + np.flatnonzero(label))
            passages[row : row + len(keys)] = passage
            last_key = keys[-1]
            row += len(keys)
    if not row:
        raise UserError(
            f"{path}: holds no training list; widen candidates.depth or relax candidates.denoise"
        )
    firsts = np.concatenate(starts)
    labelled = np.concatenate(positive_rows)
    owners = np.searchsorted(firsts, labelled, "right") - 1
    positives = np.bincount(owners, minlength=len(firsts))
    if not np.array_equal(labelled, join_ranges(firsts, positives)):
        raise UserError(f"{path}: positives of a list do not stand first in it; make it again")
    stored = None if scores is None else np.load(scores, mmap_mode="r", allow_pickle=False)
    if stored is not None and len(stored) != row:
        raise UserError(
            f"{scores}: holds {len(stored):,} scores, but {path} has {row:,} rows; make the teacher again"
        )
    return Lists(np.concatenate(queries), np.append(firsts, row), positives, passages, stored)


def add_ids(rows: pa.Table, names: DatasetNames) -> pa.Table:
    """Return rows of a candidates.parquet with the columns `query_id` and `doc_id` put before the others."""
    queries = [names.queries[row] for row in rows["query_row"].to_pylist()]
    ids = {
        "query_id": pa.array(queries, pa.string()),
        "doc_id": pa.array(names.of(rows["passage_row"]), pa.string()),
    }
    return pa.table({**ids, **{name: rows[name] for name in rows.column_names}})


def join_lists(parts: Sequence[Lists]) -> Lists:
    """Concatenate sets of lists. If there is more than one set, none of them may have a teacher's scores."""
    if len(parts) == 1:
        return parts[0]
    return Lists(
        queries=np.concatenate([part.queries for part in parts]),
        offsets=sum_lengths(np.concatenate([np.diff(part.offsets) for part in parts])),
        positives=np.concatenate([part.positives for part in parts]),
        passages=np.concatenate([part.passages for part in parts]),
    )


def merge_lists(parts: Sequence[Lists]) -> Lists:
    """Merge all lists of a query into one: first the positives of all, then the negatives of all, part after part.

    A passage occurs once, among the positives if it is a positive in any list. Queries keep the order of their first
    lists.
    """
    joined = join_lists(parts)
    lists_by_query = np.argsort(joined.queries, kind="stable")
    # A group, the lists of one query, ends where the query changes. Groups are sorted by the first list of each.
    ends = np.flatnonzero(np.diff(joined.queries[lists_by_query])) + 1
    groups = sorted(np.split(lists_by_query, ends), key=lambda group: int(group[0]))
    queries = []
    positives = []
    passages = []
    for group in groups:
        relevant: dict[int, None] = {}
        others: dict[int, None] = {}
        for index in group.tolist():
            start, stop = joined.offsets[index : index + 2].tolist()
            first_negative = start + int(joined.positives[index])
            relevant |= dict.fromkeys(joined.passages[start:first_negative].tolist())
            others |= dict.fromkeys(joined.passages[first_negative:stop].tolist())
        queries.append(joined.queries[group[0]])
        positives.append(len(relevant))
        merged = [*relevant, *(row for row in others if row not in relevant)]
        passages.append(np.array(merged, np.int32))
    offsets = sum_lengths(np.array([len(rows) for rows in passages], np.int64))
    return Lists(
        np.array(queries), offsets, np.array(positives, np.int64), np.concatenate(passages)
    )


@dataclass(frozen=True)
class Batch:
    """Hold one step's lists.

    Attributes:
        queries: rows of the queries, shape (queries,).
        passages: rows of the passages, positives first; -1 pads, shape (queries, list).
        teacher: a teacher's scores of the passages, float32, same shape, NaN for padding and where it has none; None
            without a teacher.
        positives: how many of each list are positives, shape (queries,); None: one each.
    """

    queries: Ids
    passages: Ids
    teacher: Ids | None = None
    positives: Ids | None = None

    @property
    def mask(self) -> Ids:
        """True for passages, False for padding, shape (queries, list)."""
        return self.passages >= 0

    def select(self, indices: Ids | slice) -> "Batch":
        """Return some of the lists, in this order."""
        teacher = None if self.teacher is None else self.teacher[indices]
        positives = None if self.positives is None else self.positives[indices]
        return Batch(self.queries[indices], self.passages[indices], teacher, positives)


def _sort_pairs(queries: Ids, passages: Ids) -> Ids:
    """Return pairs of a query row and a passage row as integers (see `_PASSAGE_BITS`), sorted, each pair once."""
    return np.unique(queries.astype(np.int64) << _PASSAGE_BITS | passages.astype(np.int64))


def _find_passages(pairs: Ids, queries: Ids) -> tuple[Ids, Ids]:
    """Look up the passages of some queries in sorted pairs.

    Returns:
        For each match the index of its query in `queries`, and its passage row.
    """
    rows = queries.astype(np.int64)
    first = np.searchsorted(pairs, rows << _PASSAGE_BITS)
    stop = np.searchsorted(pairs, (rows + 1) << _PASSAGE_BITS)
    owners = np.repeat(np.arange(len(rows)), stop - first)
    return owners, pairs[join_ranges(first, stop - first)] & _PASSAGE_MASK


class Positives:
    """Look up the known positives of each query, kept as sorted (query row, passage row) pairs.

    Args:
        queries: query row of each relevant pair, shape (pairs,).
        passages: its passage row, shape (pairs,).
        texts: token ids of all passages; passages with the same ids count as one, as in mining. None: all rows differ.
        own: row of the passage that is the query itself and therefore never its negative, or -1, shape (all queries,).
        barred: query rows and passage rows of pairs that are neither relevant nor negatives, shape (pairs,) each.
    """

    def __init__(
        self,
        queries: Ids,
        passages: Ids,
        texts: Ragged | None = None,
        own: Ids | None = None,
        barred: tuple[Ids, Ids] | None = None,
    ) -> None:
        self.keys = _sort_pairs(queries, passages)
        self.texts = texts
        self.own = own
        self.barred = self.keys[:0] if barred is None else _sort_pairs(*barred)

    def look_up(self, queries: Ids) -> tuple[Ids, Ids]:
        """Return the known positives of some queries: the index of each one's query in `queries`, and its row."""
        return _find_passages(self.keys, queries)

    def list_pairs(self) -> tuple[Ids, Ids]:
        """Return query row and passage row of every known positive, sorted by query, then by passage."""
        return self.keys >> _PASSAGE_BITS, self.keys & _PASSAGE_MASK

    def without(self, queries: Ids) -> "Positives":
        """Return the positives of all queries except these."""
        others = copy.copy(self)
        others.keys = self.keys[~np.isin(self.keys >> _PASSAGE_BITS, queries)]
        return others

    def mask_known(self, queries: Ids, passages: Ids) -> Ids:
        """Return True where a passage cannot be a negative of a query, shape (queries, passages).

        Such a passage is a known positive, a barred passage, the query itself, or has the same text as one of these.
        The queries' few positives are looked up among the passages, which is faster than the other way round.
        """
        owners, relevant = self.look_up(queries)
        if len(self.barred):
            barred_owners, barred = _find_passages(self.barred, queries)
            owners = np.append(owners, barred_owners)
            relevant = np.append(relevant, barred)
        if self.own is not None:
            own = self.own[queries]
            has_own = np.flatnonzero(own >= 0)
            owners = np.append(owners, has_own)
            relevant = np.append(relevant, own[has_own])
        relevant, texts = self._number_texts(relevant, passages)
        # Passages with the same text are neighbours in `order`: those with a positive's text are a range of it.
        order = np.argsort(texts, kind="stable")
        left = np.searchsorted(texts[order], relevant, "left")
        counts = np.searchsorted(texts[order], relevant, "right") - left
        known = np.zeros((len(queries), len(passages)), bool)
        known[np.repeat(owners, counts), order[join_ranges(left, counts)]] = True
        return known

    def lengthen(self, batch: Batch) -> Batch:
        """Return the batch with the first positives of the other lists appended to each list, each passage once.

        Known positives of the list's query, and passages that the list already has, are left out. Added passages have
        no teacher's score.
        """
        added = batch.passages[:, 0]
        added_texts, own_texts = self._number_texts(added, batch.passages)
        is_repeated = np.ones(len(added), bool)
        is_repeated[np.unique(added_texts, return_index=True)[1]] = False
        is_listed = (own_texts[:, :, None] == added_texts).any(1)
        barred = self.mask_known(batch.queries, added) | is_listed | is_repeated
        teacher = batch.teacher
        if teacher is not None:
            unscored = np.full(barred.shape, np.nan, teacher.dtype)
            teacher = np.concatenate([teacher, unscored], 1)
        passages = np.concatenate([batch.passages, np.where(barred, -1, added)], 1)
        return replace(batch, passages=passages, teacher=teacher)

    def _number_texts(self, *groups: Ids) -> list[Ids]:
        """Replace the passage rows in arrays of any shape by numbers that rows of the same text share; -1 stays."""
        if self.texts is None:
            return list(groups)
        every = np.unique(np.concatenate([rows.ravel() for rows in groups])).astype(np.int64)
        is_passage = every >= 0
        # All texts are taken at once: a slice of mapped memory costs more than the text that it reads.
        texts = self.texts.take(every[is_passage])
        data = texts.ids.tobytes()
        bounds = (texts.offsets * texts.ids.itemsize).tolist()
        first_with_text: dict[bytes, int] = {}
        shared = []
        for row, start, stop in zip(every[is_passage].tolist(), bounds, bounds[1:], strict=False):
            shared.append(first_with_text.setdefault(data[start:stop], row))
        numbers = every.copy()
        numbers[is_passage] = shared
        return [numbers[np.searchsorted(every, rows)] for rows in groups]
