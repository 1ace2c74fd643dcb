"""Validation within a training: nDCG@10 on dev queries, or on training queries that are set apart.

As on a reduced corpus (`train.checkpoints`): a dual encoder retrieves from a pool, the passages of all the queries'
lists and their relevant ones; a cross-encoder re-ranks each query's own list. The values compare steps of one training
and belong in no table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from tandem.data.collection import Collection
from tandem.data.rows import IdRows, doc_rows, query_rows
from tandem.data.runs import iter_rows
from tandem.models.ragged import Ids, Ragged
from tandem.store.artifact import Artifact
from tandem.training.distributed import SINGLE_PROCESS, World
from tandem.training.lists import Batch, Lists, Positives
from tandem.training.objectives import Ranker

_CUT = 10
MEASURE = f"nDCG@{_CUT}"
_SHARE = 10  # one of so many training queries is set apart where there are no dev queries

RowGrades = dict[int, int]  # row of a relevant passage → its grade


@dataclass(frozen=True)
class NumberedCollection:
    """A collection, and in which rows its passages and queries stand.

    `own` is the passage of each query's own id, which is no result of it, -1 for none, shape (queries,).
    """

    collection: Collection
    passages: IdRows
    queries: IdRows
    own: Ids

    @classmethod
    def of(cls, dataset: Artifact, ignore_identical_ids: bool = False) -> Self:
        """Number a dataset's passages and queries; with `ignore_identical_ids` queries may be passages, too."""
        collection = Collection(dataset)
        passages, queries = doc_rows(collection), query_rows(collection)
        own = np.full(len(queries), -1)
        if ignore_identical_ids:
            own = passages.rows(queries.all.to_pylist(), missing_ok=True)
        return cls(collection, passages, queries, own)

    def graded(self, judged: dict[str, int]) -> RowGrades:
        """The relevant passages of a query that the corpus has, by row."""
        relevant = {doc: grade for doc, grade in judged.items() if grade > 0}
        at = self.passages.rows(list(relevant), missing_ok=True)
        return {int(row): grade for row, grade in zip(at, relevant.values(), strict=True) if row >= 0}

    def positives(self, lists: Lists, texts: Ragged | None = None) -> Positives:
        """The relevant pairs of the train split and the lists' positives, which a judge or answers may have labelled.

        What the corpus lacks is left out; `texts` are the token ids of its passages.
        """
        qrels = self.collection.qrels("train")
        pairs = [(q, d) for q, grades in qrels.items() for d, relevance in grades.items() if relevance > 0]
        docs = self.passages.rows([d for _, d in pairs], missing_ok=True)
        at = self.queries.rows([q for q, _ in pairs])
        listed, judged = lists.list_positives(), (at[docs >= 0], docs[docs >= 0])
        queries, relevant = (np.concatenate(both) for both in zip(judged, listed, strict=True))
        return Positives(queries, relevant, texts, self.own)


@dataclass(frozen=True)
class ValidationSet:
    """Queries and what their passages are worth.

    Attributes:
        batch: the queries and the lists that a cross-encoder re-ranks.
        grades: of each query.
        origin: where they come from, in words.
        ordered: whether the lists' order is that of a first stage, which a cross-encoder should improve.
        own: the passage that each query is itself, no result of it, -1 for none, shape (queries,); None: all -1.
    """

    batch: Batch
    grades: list[RowGrades]
    origin: str
    ordered: bool = True
    own: Ids | None = None

    @cached_property
    def pool(self) -> Ids:
        """Rows of the passages that a dual encoder retrieves from, ascending."""
        relevant = np.array([row for grades in self.grades for row in grades], np.int64)
        return np.unique(np.concatenate([self.batch.passages[self.batch.mask], relevant]))

    @property
    def as_listed(self) -> float | None:
        """nDCG@10 of the lists as they stand, if their order is a first stage's."""
        return ndcg(self.batch.passages[:, :_CUT], self.grades) / len(self.grades) if self.ordered else None


def read_validation(data: NumberedCollection, run: Artifact, count: int, depth: int) -> ValidationSet | None:
    """The first `count` dev queries of a run with its top `depth` passages; None if none has a relevant passage."""
    qrels = data.collection.qrels("dev")
    names, chosen = data.queries.all.to_pylist(), list[tuple[int, Ids, RowGrades]]()
    for query, docs, _ in iter_rows(run, data.collection.artifact):
        if len(chosen) == count:
            break
        if grades := data.graded(qrels.get(names[query], {})):
            chosen.append((query, docs[docs != data.own[query]][:depth], grades))
    if not chosen:
        return None
    at, tops, grades_of = zip(*chosen, strict=True)
    origin = f"{len(chosen):,} dev queries, the top {depth} of {run.key}"
    return ValidationSet(Batch(np.array(at), padded(tops)), list(grades_of), origin, own=data.own[np.array(at)])


def set_apart(
    lists: Lists, positives: Positives, data: NumberedCollection, most: int, seed: int
) -> tuple[Lists, ValidationSet | None]:
    """Set the lists of a tenth of the queries, at most `most`, apart to validate on; the other lists, and these.

    A query that is set apart is validated on its first list. Its grades are those of the qrels, else 1 for each of its
    known positives.

    Returns:
        The lists that are trained on and the validation; None where there are fewer than two queries.
    """
    apart = queries_apart(lists, most, seed)
    if not len(apart):
        return lists, None
    known, first = np.unique(lists.queries, return_index=True)
    held = lists.select(first[np.searchsorted(known, apart)])
    qrels, tops, grades_of = data.collection.qrels("train"), [], []
    owner, relevant = positives.look_up(apart)
    for i, query in enumerate(data.queries.ids(apart)):
        tops.append(held.passages[held.offsets[i] : held.offsets[i + 1]].astype(np.int64))
        grades_of.append(dict.fromkeys(relevant[owner == i].tolist(), 1) | data.graded(qrels.get(query, {})))
    origin = f"{len(apart):,} of {len(known):,} training queries, which are set apart"
    validation = ValidationSet(Batch(apart, padded(tops)), grades_of, origin, ordered=False, own=data.own[apart])
    return lists.select(np.flatnonzero(~np.isin(lists.queries, apart))), validation


def queries_apart(lists: Lists, most: int, seed: int) -> Ids:
    """The rows of a tenth of the lists' queries, one to `most`, drawn by `seed`; none if there is only one query."""
    known = np.unique(lists.queries)
    count = min(most, max(1, len(known) // _SHARE)) if len(known) > 1 else 0
    return np.sort(np.random.default_rng([seed, 2]).permutation(known)[:count])


def padded(lists: Sequence[Ids]) -> Ids:
    """Lists of rows side by side, filled up with -1: shape (lists, longest)."""
    grid = np.full((len(lists), max(1, *map(len, lists))), -1, np.int64)
    for row, ids in zip(grid, lists, strict=True):
        row[: len(ids)] = ids
    return grid


def validate(ranker: Ranker, validation: ValidationSet, world: World = SINGLE_PROCESS) -> dict[str, float]:
    """nDCG@10 of each model part, by part; each process ranks a share of the queries."""
    ranker.models.eval()
    count = len(validation.grades)
    own = world.slice(count)
    batch, grades, pool = validation.batch.select(own), validation.grades[own], validation.pool
    itself = -1 if validation.own is None else validation.own[own][:, None]
    values = {}
    for part, scores in ranker.scores(batch, pool).items():
        passages = np.broadcast_to(pool, scores.shape) if part == "dual" else batch.passages
        ranked = rank_passages(scores.float().cpu().numpy(), np.where(passages == itself, -1, passages))
        values[part] = ndcg(ranked, grades)
    return {part: value / count for part, value in world.total(values).items()}


def rank_passages(scores: Ids, passages: Ids) -> Ids:
    """The ten best passages of each query, shape (queries, at most 10).

    Of equal scores the later stands first: a model that tells nothing apart gains nothing from the lists' order.

    Args:
        scores: shape (queries, passages).
        passages: their rows, -1 where none stands, same shape.
    """
    scores, passages = np.where(passages >= 0, scores, -np.inf)[:, ::-1], passages[:, ::-1]
    order = np.argsort(-scores, axis=1, kind="stable")[:, :_CUT]
    return np.take_along_axis(passages, order, 1)


def ndcg(ranked: Ids, grades: list[RowGrades]) -> float:
    """Σ over queries of DCG@10 / ideal DCG@10, with DCG = Σ_i grade_i / log2(i + 1) (trec_eval's gains).

    `ranked` are rows of the best passages, shape (queries, at most 10); -1 where none stands.
    """
    discounts = 1 / np.log2(np.arange(_CUT) + 2)
    total = 0.0
    for row, own in zip(ranked.tolist(), grades, strict=True):
        gains = np.array([own.get(passage, 0) for passage in row])
        ideal = np.sort(np.array(list(own.values())))[::-1][:_CUT]
        total += float((gains * discounts[: len(gains)]).sum() / (ideal * discounts[: len(ideal)]).sum())
    return total
