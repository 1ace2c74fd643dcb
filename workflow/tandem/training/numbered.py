"""A collection whose passages and queries are numbered, as training lists have them."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from tandem.data.collection import Collection
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
        its passages.
        """
        names = []
        docs = []
        for query, grades in self.collection.qrels("train").items():
            relevant = [doc for doc, grade in grades.items() if grade > 0]
            names += [query] * len(relevant)
            docs += relevant
        passages = self.passages.rows(docs, missing_ok=True)
        queries = self.queries.rows(names)

        is_known = passages >= 0
        listed_queries, listed_passages = lists.list_positives()
        queries = np.concatenate([queries[is_known], listed_queries])
        passages = np.concatenate([passages[is_known], listed_passages])
        return Positives(queries, passages, texts, self.own)
