"""Translate the ids of a collection into the row numbers that training lists use."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from tandem.data.collection import EXCLUDED, LITERAL_MATCH, Collection
from tandem.data.rows import IdRows, index_passages, index_queries
from tandem.models.ragged import Ids, Ragged
from tandem.store.artifact import Artifact
from tandem.store.job import load
from tandem.training.lists import Lists, Positives


@dataclass(frozen=True)
class NumberedCollection:
    """Hold a collection, and the row numbers of its passages and queries.

    Attributes:
        own: row of the passage that has the query's own id and therefore cannot be its result, or -1, shape (queries,).
        splits: splits from whose queries a model learns, in addition to `train`.
    """

    collection: Collection
    passages: IdRows
    queries: IdRows
    own: Ids
    splits: tuple[str, ...] = ()

    @classmethod
    def of(cls, dataset: Artifact, ignore_identical_ids: bool = False, *splits: str) -> Self:
        """Number a dataset's passages and queries; with `ignore_identical_ids` a query may be a passage, too."""
        collection = Collection(dataset)
        passages = index_passages(collection)
        queries = index_queries(collection)
        own = np.full(len(queries), -1)
        if ignore_identical_ids:
            own = passages.rows(queries.all.to_pylist(), missing_ok=True)
        return cls(collection, passages, queries, own, splits)

    def list_positives(self, lists: Lists, texts: Ragged | None = None) -> Positives:
        """Return the relevant pairs of the queries that are learned from, together with the lists' positives.

        The lists may have further positives, found by a judge or by answers. Passages that the corpus lacks are left
        out. Pairs whose grade marks them as neither relevant nor negative are barred.

        Args:
            texts: token ids of the corpus' passages.
        """
        qrels = load("extras.judgements:read_learned_judgements")(self.collection, *self.splits)
        queries, passages = self._number_pairs(qrels, lambda grade: grade > 0)
        barred = self._number_pairs(qrels, lambda grade: grade in (EXCLUDED, LITERAL_MATCH))
        listed_queries, listed_passages = lists.list_positives()
        queries = np.concatenate([queries, listed_queries])
        passages = np.concatenate([passages, listed_passages])
        return Positives(queries, passages, texts, self.own, barred if len(barred[0]) else None)

    def _number_pairs(
        self, qrels: Mapping[str, Mapping[str, int]], chosen: Callable[[int], bool]
    ) -> tuple[Ids, Ids]:
        """Return query rows and passage rows of the pairs of chosen grades, without passages that the corpus lacks."""
        names = []
        docs = []
        for query, grades in qrels.items():
            of_query = [doc for doc, grade in grades.items() if chosen(grade)]
            names += [query] * len(of_query)
            docs += of_query
        passages = self.passages.rows(docs, missing_ok=True)
        is_known = passages >= 0
        return self.queries.rows(names)[is_known], passages[is_known]

    def list_left_out(self, query: int, grades: Mapping[str, int]) -> Ids:
        """Return the rows of passages that cannot be results of a query: the query itself, and `EXCLUDED` passages."""
        rows = self.own[[query]]
        excluded = [doc for doc, grade in grades.items() if grade == EXCLUDED]
        if excluded:
            rows = np.append(rows, self.passages.rows(excluded, missing_ok=True))
        return rows[rows >= 0]
