"""Training lists in arrays, the batches of a step, and the known positives: a list is a query with its passages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandem.data.columns import Names
from tandem.data.tables import streaming
from tandem.errors import UserError
from tandem.models.ragged import Ids, Ragged, ends, ranges

RATE = 0.18e12  # operations a second of training on two cores with AVX-512 and bf16 (config/hardware/cpu.yaml)
MOST_EPOCHS = 20  # visits of a list, after which more of the same teach little
VALIDATIONS = 10  # of a training, beside that of its start, where nobody says how often
SHARE = 1 / 3  # of a budget, for validations


@dataclass(frozen=True)
class Lists:
    """All training lists: `passages[offsets[i]:offsets[i + 1]]` belong to list i, its positives first.

    Attributes:
        queries: row of each list's query in queries.parquet, shape (lists,).
        offsets: shape (lists + 1,).
        positives: number of positives of each list, shape (lists,).
        passages: rows in corpus.parquet, int32, shape (rows,).
        scores: a teacher's scores of them, float32, NaN where it has none, same shape; None without a teacher.
    """

    queries: Ids
    offsets: Ids
    positives: Ids
    passages: Ids
    scores: Ids | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def relevant(self) -> tuple[Ids, Ids]:
        """Query row and passage row of every positive."""
        first = self.offsets[:-1]
        return np.repeat(self.queries, self.positives), self.passages[ranges(first, self.positives)]

    def taken(self, which: Ids) -> "Lists":
        """Some of the lists, in this order."""
        sizes = np.diff(self.offsets)[which]
        rows = ranges(self.offsets[which], sizes)
        scores = None if self.scores is None else self.scores[rows]
        return Lists(self.queries[which], ends(sizes), self.positives[which], self.passages[rows], scores)

    def pairs(self, start: int, stop: int) -> tuple[Ids, Ids]:
        """Query row and passage row of the rows from start to stop, whatever lists they belong to."""
        owner = np.searchsorted(self.offsets, np.arange(start, stop), side="right") - 1
        return self.queries[owner], self.passages[start:stop]


def read_lists(path: Path, scores: Path | None = None) -> Lists:
    """The lists of a candidates.parquet whose rows of one list stand together, positives first.

    Memory: 4 bytes a row; 500,000 lists of 128 passages take 0.3 GB. A teacher's scores are memory-mapped.

    Raises:
        UserError: there is no list, or another number of scores than of rows.
    """
    starts, queries, positive, last, at = [], [], [], -1, 0
    with streaming(path) as file:
        passages = np.empty(file.metadata.num_rows, np.int32)
        for batch in file.iter_batches(1 << 20, columns=["query_row", "passage_row", "label", "list"]):
            query, passage, label = (batch.column(i).to_numpy().astype(np.int64) for i in range(3))
            keys = query << 1 | np.asarray(pc.equal(batch.column(3), "denoised"))
            first = np.flatnonzero(np.diff(keys, prepend=last))
            starts.append(at + first)
            queries.append(query[first])
            positive.append(at + np.flatnonzero(label))
            passages[at : at + len(keys)] = passage
            last, at = keys[-1], at + len(keys)
    if not at:
        raise UserError(f"{path}: holds no training list; widen candidates.depth or relax candidates.denoise")
    firsts = np.concatenate(starts)
    positives = np.bincount(np.searchsorted(firsts, np.concatenate(positive), "right") - 1, minlength=len(firsts))
    stored = None if scores is None else np.load(scores, mmap_mode="r", allow_pickle=False)
    if stored is not None and len(stored) != at:
        raise UserError(f"{scores}: holds {len(stored):,} scores, but {path} has {at:,} rows; make the teacher again")
    return Lists(np.concatenate(queries), np.append(firsts, at), positives, passages, stored)


def with_ids(rows: pa.Table, names: Names) -> pa.Table:
    """Rows of a candidates.parquet behind the ids of their queries and passages: `query_id`, `doc_id`."""
    queries = [names.queries[row] for row in rows["query_row"].to_pylist()]
    ids = {"query_id": pa.array(queries, pa.string()), "doc_id": pa.array(names.of(rows["passage_row"]), pa.string())}
    return pa.table({**ids, **{name: rows[name] for name in rows.column_names}})


def joined(parts: Sequence[Lists]) -> Lists:
    """Several sets of lists as one, in their order; none of them has a teacher's scores."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(
        *((part.queries, np.diff(part.offsets), part.positives, part.passages) for part in parts), strict=True
    )
    queries, sizes, positives, passages = map(np.concatenate, columns)
    return Lists(queries, ends(sizes), positives, passages)


@dataclass(frozen=True)
class Batch:
    """One step's lists.

    Attributes:
        queries: rows of the queries, shape (queries,).
        passages: rows of the passages, positives first; -1 pads, shape (queries, list).
        teacher: a teacher's scores of them, float32, NaN where it has none or no passage stands, same shape; None
            without a teacher.
        positives: how many of each list are positives, shape (queries,); None: one each.
    """

    queries: Ids
    passages: Ids
    teacher: Ids | None = None
    positives: Ids | None = None

    @property
    def mask(self) -> Ids:
        """True where a passage stands, shape (queries, list)."""
        return self.passages >= 0

    def taken(self, which: Ids | slice) -> "Batch":
        """Some of the lists, in this order."""
        stored, counts = (None if rows is None else rows[which] for rows in (self.teacher, self.positives))
        return Batch(self.queries[which], self.passages[which], stored, counts)


def visit_sizes(lists: Lists, size: int, most: int) -> tuple[Ids, Ids]:
    """How many positives and how many negatives a visit of each list has, shape (lists,) each."""
    positives = np.minimum(most, lists.positives)
    return positives, np.minimum(size - positives, np.diff(lists.offsets) - lists.positives)


def steps_within(minutes: float, operations: float, instances: int, per_batch: int) -> int:
    """The steps, of so many operations each, that a budget pays for: at most `MOST_EPOCHS`, at least one.

    No clock is read and no machine asked, so that a training is the same wherever it runs.
    """
    affordable, useful = minutes * 60 * RATE / max(operations, 1), MOST_EPOCHS * instances / per_batch
    return max(1, int(min(affordable, useful)))


def validations_within(minutes: float, operations: float) -> tuple[int, float]:
    """How often a training validates after its start, and the minutes of its budget that are left for steps.

    A third of the budget decides: as often as it pays for (`operations` each), at least at the end, at most
    `VALIDATIONS` times. What it does not pay for may take half of the budget and then comes on top.
    """
    each = operations / 60 / RATE
    count = int(min(max(minutes * SHARE / each - 1, 1), VALIDATIONS)) if each else VALIDATIONS
    return count, minutes - min((count + 1) * each, minutes / 2)


class Positives:
    """The known positives of each query, as sorted (query row, passage row) pairs.

    Args:
        queries: query row of each relevant pair, shape (pairs,).
        passages: its passage row, shape (pairs,).
        texts: token ids of all passages: those with the same are one passage, as in mining. None: each is its own.
        own: the passage that each query is itself, as no negative of it, -1 for none, shape (all queries,).
    """

    def __init__(self, queries: Ids, passages: Ids, texts: Ragged | None = None, own: Ids | None = None) -> None:
        self.keys = np.unique(queries.astype(np.int64) << 32 | passages.astype(np.int64))
        self.texts, self.own = texts, own

    def of(self, queries: Ids) -> tuple[Ids, Ids]:
        """The known positives of some queries: the place of each one's query among these, and its passage row."""
        rows = queries.astype(np.int64)
        first, last = np.searchsorted(self.keys, rows << 32), np.searchsorted(self.keys, (rows + 1) << 32)
        return np.repeat(np.arange(len(rows)), last - first), self.keys[ranges(first, last - first)] & 0xFFFFFFFF

    def without(self, queries: Ids) -> "Positives":
        """The positives of all other queries."""
        keys = self.keys[~np.isin(self.keys >> 32, queries)]
        return Positives(keys >> 32, keys & 0xFFFFFFFF, self.texts, self.own)

    def known(self, queries: Ids, passages: Ids) -> Ids:
        """Whether each passage is a known positive of each query, or itself, or a copy: shape (queries, passages).

        The queries' few positives are looked up among the passages, not every passage among all positives.
        """
        owner, rows = self.of(queries)
        if self.own is not None:
            own = self.own[queries]
            owner, rows = np.append(owner, np.flatnonzero(own >= 0)), np.append(rows, own[own >= 0])
        relevant, among = self._numbered(rows, passages)
        order = np.argsort(among, kind="stable")
        left, right = (np.searchsorted(among[order], relevant, side) for side in ("left", "right"))
        known = np.zeros((len(queries), len(passages)), bool)
        known[np.repeat(owner, right - left), order[ranges(left, right - left)]] = True
        return known

    def lengthened(self, batch: Batch) -> Batch:
        """Each list followed by the first positives of the others, each once: none that its query knows or it has.

        A teacher has not scored what was added.
        """
        added = batch.passages[:, 0]
        firsts, own = self._numbered(added, batch.passages)
        repeated = np.ones(len(firsts), bool)
        repeated[np.unique(firsts, return_index=True)[1]] = False
        listed = (own[:, :, None] == firsts).any(1)
        barred = self.known(batch.queries, added) | listed | repeated
        stored = batch.teacher
        if stored is not None:
            stored = np.concatenate([stored, np.full(barred.shape, np.nan, stored.dtype)], 1)
        passages = np.concatenate([batch.passages, np.where(barred, -1, added)], 1)
        return replace(batch, passages=passages, teacher=stored)

    def _numbered(self, *groups: Ids) -> list[Ids]:
        """Groups of passage rows, of any shape, in numbers that rows of the same text share; -1 stays."""
        if self.texts is None:
            return list(groups)
        every = np.unique(np.concatenate([rows.ravel() for rows in groups])).astype(np.int64)
        known, first = every >= 0, dict[bytes, int]()
        texts = self.texts.take(every[known])  # at once: a slice of mapped memory costs more than its text
        data, bounds = texts.ids.tobytes(), (texts.offsets * texts.ids.itemsize).tolist()
        numbers = every.copy()
        numbers[known] = [
            first.setdefault(data[start:end], row)
            for row, start, end in zip(every[known].tolist(), bounds, bounds[1:], strict=False)
        ]
        return [numbers[np.searchsorted(every, rows)] for rows in groups]
