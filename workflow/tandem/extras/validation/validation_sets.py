"""Validation within a training: nDCG@10 on dev queries, or on training queries that are set apart.

As on the reduced corpus of `train.checkpoints`, a dual encoder retrieves from a pool: the passages of all the queries'
lists, and their relevant ones. A cross-encoder re-ranks each query's own list. The values compare steps of one training
and belong in no table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from tandem.data.runs import iter_rows
from tandem.extras.judgements import read_learned_judgements
from tandem.extras.validation.validation_points import NDCG_CUT
from tandem.models.ragged import Ids
from tandem.store.artifact import Artifact
from tandem.training.distributed import SINGLE_PROCESS, World
from tandem.training.lists import Batch, Lists, Positives
from tandem.training.numbered import NumberedCollection
from tandem.training.objectives import Ranker

_SHARE = 10  # one of so many training queries is set apart where there are no dev queries

RowGrades = dict[int, int]  # row of a relevant passage → its grade


@dataclass(frozen=True)
class ValidationSet:
    """Queries to validate on, and the grades of their passages.

    Attributes:
        batch: the queries and the lists that a cross-encoder re-ranks.
        grades: for each query.
        origin: where they come from, in words.
        ordered: whether the lists' order is that of a first stage, which a cross-encoder should improve.
        left_out: rows of the passages that cannot be results of each query, shape (queries, most), padded with -1: the
            query itself, and passages that the qrels exclude. None if there are none.
    """

    batch: Batch
    grades: list[RowGrades]
    origin: str
    ordered: bool = True
    left_out: Ids | None = None

    @cached_property
    def pool(self) -> Ids:
        """Return the rows of the passages that a dual encoder retrieves from, ascending."""
        relevant = np.array(list(chain.from_iterable(self.grades)), np.int64)
        return np.unique(np.concatenate([self.batch.passages[self.batch.mask], relevant]))

    @property
    def as_listed(self) -> float | None:
        """Return nDCG@10 of the lists in their given order, if that is a first stage's."""
        if not self.ordered:
            return None
        return sum_ndcg(self.batch.passages[:, :NDCG_CUT], self.grades) / len(self.grades)


def read_validation(
    data: NumberedCollection, run: Artifact, count: int, depth: int
) -> ValidationSet | None:
    """Return the first `count` dev queries of a run with its top `depth` passages.

    None if none has a relevant passage.
    """
    qrels = data.collection.qrels("dev")
    names = data.queries.all.to_pylist()
    queries: list[int] = []
    tops: list[Ids] = []
    grades_of_queries: list[RowGrades] = []
    left_out: list[Ids] = []
    for query, docs, _ in iter_rows(run, data.collection.artifact):
        if len(queries) == count:
            break
        judged = qrels.get(names[query], {})
        grades = find_grades(data, judged)
        if grades:
            no_results = data.list_left_out(query, judged)
            queries.append(query)
            tops.append(docs[~np.isin(docs, no_results)][:depth])
            grades_of_queries.append(grades)
            left_out.append(no_results)
    if not queries:
        return None
    rows = np.array(queries)
    origin = f"{len(queries):,} dev queries, the top {depth} of {run.key}"
    return ValidationSet(
        Batch(rows, pad_lists(tops)), grades_of_queries, origin, left_out=_pad_left_out(left_out)
    )


def find_grades(data: NumberedCollection, judged: dict[str, int]) -> RowGrades:
    """Return the relevant passages of a query, of those that the corpus has, by row."""
    relevant = {doc: grade for doc, grade in judged.items() if grade > 0}
    rows = data.passages.rows(list(relevant), missing_ok=True)
    return {int(row): grade for row, grade in zip(rows, relevant.values(), strict=True) if row >= 0}


def set_apart(
    lists: Lists, positives: Positives, data: NumberedCollection, most: int, seed: int
) -> tuple[Lists, ValidationSet | None]:
    """Set the lists of a tenth of the queries, at most `most`, apart for validation; return the rest, and these.

    A query that is set apart is validated on its first list. Its grades are those of the qrels, else 1 for each of its
    known positives.

    Returns:
        The lists that are trained on, and the validation, which is None if there are fewer than two queries.
    """
    apart = draw_apart(lists, most, seed)
    if not len(apart):
        return lists, None
    known, first = np.unique(lists.queries, return_index=True)
    held = lists.select(first[np.searchsorted(known, apart)])
    qrels = read_learned_judgements(data.collection, *data.splits)
    tops = []
    grades_of_queries = []
    left_out = []
    owner, relevant = positives.look_up(apart)
    for number, query in enumerate(data.queries.ids(apart)):
        top = held.passages[held.offsets[number] : held.offsets[number + 1]]
        tops.append(top.astype(np.int64))
        grades = dict.fromkeys(relevant[owner == number].tolist(), 1)
        judged = qrels.get(query, {})
        grades_of_queries.append(grades | find_grades(data, judged))
        left_out.append(data.list_left_out(int(apart[number]), judged))

    origin = f"{len(apart):,} of {len(known):,} training queries, which are set apart"
    batch = Batch(apart, pad_lists(tops))
    validation = ValidationSet(
        batch, grades_of_queries, origin, ordered=False, left_out=_pad_left_out(left_out)
    )
    is_left = ~np.isin(lists.queries, apart)
    return lists.select(np.flatnonzero(is_left)), validation


def draw_apart(lists: Lists, most: int, seed: int) -> Ids:
    """Return the rows of lists of a tenth of the queries, at least one and at most `most`, drawn by `seed`.

    There are no rows if there is only one query.
    """
    known = np.unique(lists.queries)
    if len(known) < 2:
        return known[:0]
    count = min(most, max(1, len(known) // _SHARE))
    drawn = np.random.default_rng([seed, 2]).permutation(known)[:count]
    return np.sort(drawn)


def pad_lists(lists: Sequence[Ids]) -> Ids:
    """Return lists of rows as an array, padded with -1, shape (lists, longest)."""
    grid = np.full((len(lists), max(1, *map(len, lists))), -1, np.int64)
    for row, ids in zip(grid, lists, strict=True):
        row[: len(ids)] = ids
    return grid


def _pad_left_out(lists: Sequence[Ids]) -> Ids | None:
    """Return `pad_lists` of the passages to leave out; None if there are none."""
    return pad_lists(lists) if any(map(len, lists)) else None


def validate(
    ranker: Ranker, validation: ValidationSet, world: World = SINGLE_PROCESS
) -> dict[str, float]:
    """Return nDCG@10 of each model part, by part; each process ranks a share of the queries."""
    ranker.models.eval()
    count = len(validation.grades)
    own = world.slice(count)
    batch = validation.batch.select(own)
    grades = validation.grades[own]
    pool = validation.pool
    left_out = None if validation.left_out is None else validation.left_out[own]
    values = {}
    for part, scores in ranker.scores(batch, pool).items():
        passages = np.broadcast_to(pool, scores.shape) if part == "dual" else batch.passages
        if left_out is not None:
            passages = take_out(passages, left_out)
        ranked = rank_passages(scores.float().cpu().numpy(), passages)
        values[part] = sum_ndcg(ranked, grades)
    return {part: value / count for part, value in world.sum_values(values).items()}


def take_out(passages: Ids, left_out: Ids) -> Ids:
    """Return rows of passages, shape (queries, passages), with -1 for those of `left_out`, shape (queries, most)."""
    result = passages.copy()
    for row, no_results in zip(result, left_out, strict=True):
        row[np.isin(row, no_results)] = -1
    return result


def rank_passages(scores: Ids, passages: Ids) -> Ids:
    """Return the ten best passages of each query, shape (queries, at most 10).

    Of equal scores, the later comes first: a model that distinguishes nothing gains nothing from the lists' order.

    Args:
        scores: shape (queries, passages).
        passages: their rows, -1 where there is no passage, same shape.
    """
    scores = np.where(passages >= 0, scores, -np.inf)[:, ::-1]
    passages = passages[:, ::-1]
    order = np.argsort(-scores, axis=1, kind="stable")[:, :NDCG_CUT]
    return np.take_along_axis(passages, order, 1)


def sum_ndcg(ranked: Ids, grades: list[RowGrades]) -> float:
    """Sum over queries DCG@10 / ideal DCG@10, with DCG = Σ_i grade_i / log2(i + 1) (trec_eval's gains).

    `ranked` are rows of the best passages, shape (queries, at most 10); -1 where there is no passage.
    """
    discounts = 1 / np.log2(np.arange(NDCG_CUT) + 2)
    total = 0.0
    for row, own in zip(ranked.tolist(), grades, strict=True):
        gains = np.array([own.get(passage, 0) for passage in row])
        ideal = np.sort(np.array(list(own.values())))[::-1][:NDCG_CUT]
        dcg = (gains * discounts[: len(gains)]).sum()
        ideal_dcg = (ideal * discounts[: len(ideal)]).sum()
        total += float(dcg / ideal_dcg)
    return total
