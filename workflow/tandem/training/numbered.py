"""A collection whose passages and queries are numbered, as training lists have them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from tandem.data.collection import EXCLUDED, LITERAL_MATCH, Collection
from tandem.data.rows import IdRows, index_passages, index_queries
from tandem.models.ragged import Ids, Ragged
from tandem.store.artifact import Artifact
from tandem.training.lists import Lists, Positives


@dataclass(frozen=True)
class NumberedCollection:
    """Hold a collection, and in which rows its passages and queries stand.

    `own` is the passage of each query's own id, which is not a result of it, -1 for none, shape (queries,).
    """

    collection: Collection
    passages: IdRows
    queries: IdRows
    own: Ids

    @classmethod
    def of(cls, dataset: Artifact, ignore_identical_ids: bool = False) -> Self:
        """Number a dataset's passages and queries; with `ignore_identical_ids` queries may be passages, too."""
        collection = Collection(dataset)
        passages = index_passages(collection)
        queries = index_queries(collection)
        own = np.full(len(queries), -1)
        if ignore_identical_ids:
            own = passages.rows(queries.all.to_pylist(), missing_ok=True)
        return cls(collection, passages, queries, own)

    def list_positives(self, lists: Lists, texts: Ragged | None = None) -> Positives:
        """Return the relevant pairs of the train split and the lists' positives.

        A judge or answers may have labelled the latter. What the corpus lacks is left out; `texts` are the token ids of
        its passages. Pairs that are graded as neither relevant nor a negative are barred.
        """
        qrels = self.collection.qrels("train")
        queries, passages = self._number_pairs(qrels, lambda grade: grade > 0)
        barred = self._number_pairs(qrels, lambda grade: grade in (EXCLUDED, LITERAL_MATCH))
        listed_queries, listed_passages = lists.list_positives()
        queries = np.concatenate([queries, listed_queries])
        passages = np.concatenate([passages, listed_passages])
        return Positives(queries, passages, texts, self.own, barred if len(barred[0]) else None)

    def _number_pairs(
        self, qrels: Mapping[str, Mapping[str, int]], chosen: Callable[[int], bool]
    ) -> tuple[Ids, Ids]:
        """Return query rows and passage rows of the pairs of chosen grades; what the corpus lacks is left out."""
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
        """Return the rows of passages that are no results of a query: itself, and those that are graded `EXCLUDED`."""
        rows = self.own[[query]]
        excluded = [doc for doc, grade in grades.items() if grade == EXCLUDED]
        if excluded:
            rows = np.append(rows, self.passages.rows(excluded, missing_ok=True))
        return rows[rows >= 0]
