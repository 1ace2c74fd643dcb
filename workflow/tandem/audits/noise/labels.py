"""Queries and judgements of a dataset, split by split, and what is wrong with them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pyarrow.parquet as pq

from tandem.audits.noise.shingles import normalised
from tandem.data import tables
from tandem.data.collection import QRELS, QUERIES, Collection
from tandem.data.rows import IdRows, Rows


@dataclass
class Split:
    """One split.

    Attributes:
        queries: query id → text.
        judged: query id → document id → relevance, of queries with any judgement.
        rows: document id → row of every judged passage, -1 where the corpus lacks it.
    """

    queries: dict[str, str] = field(default_factory=dict)
    judged: dict[str, dict[str, int]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    def positives(self, query: str) -> list[str]:
        """Ids of a query's relevant passages, in the corpus or not."""
        return [doc for doc, relevance in self.judged.get(query, {}).items() if relevance > 0]

    def known(self, query: str) -> list[int]:
        """Rows of a query's relevant passages that are in the corpus."""
        return [self.rows[doc] for doc in self.positives(query) if self.rows[doc] >= 0]

    def positive_rows(self) -> Rows:
        """Rows of all relevant passages in the corpus, ascending."""
        return np.unique(np.asarray([row for query in self.judged for row in self.known(query)], np.int64))

    def without_positive(self) -> list[str]:
        """Judged queries of which no judgement is relevant."""
        return [query for query in self.judged if not self.positives(query)]

    def missing(self) -> dict[str, list[str]]:
        """Query → relevant documents that the corpus lacks, of queries with any."""
        lost = {query: [doc for doc in self.positives(query) if self.rows[doc] < 0] for query in self.judged}
        return {query: docs for query, docs in lost.items() if docs}

    def repeated(self) -> list[list[str]]:
        """Groups of queries with the same normalised text."""
        return [group for group in by_text(self.queries).values() if len(group) > 1]

    def counts(self) -> dict[str, int]:
        """Numbers as the summary gives them."""
        missing, repeated = self.missing(), self.repeated()
        return {
            "queries": len(self.queries),
            "unjudged": len(self.queries) - len(self.judged),
            "judged": len(self.judged),
            "without_positive": len(self.without_positive()),
            "judgements": sum(map(len, self.judged.values())),
            "unknown": sum(self.rows[doc] < 0 for docs in self.judged.values() for doc in docs),
            "missing": len(missing),
            "missing_all": sum(not self.known(query) for query in missing),
            "repeated_groups": len(repeated),
            "repeated": sum(map(len, repeated)),
        }


def by_text(queries: dict[str, str]) -> dict[str, list[str]]:
    """Normalised text → ids of the queries that have it."""
    groups: dict[str, list[str]] = {}
    for query, text in queries.items():
        groups.setdefault(normalised(text), []).append(query)
    return groups


def read_splits(collection: Collection, ids: IdRows) -> dict[str, Split]:
    """Every split of a dataset: train, dev and test, then others in the order of its queries."""
    splits = {name: Split() for name in ("train", "dev", "test")}
    for query, text, split in tables.rows(
        pq.read_table(collection.artifact.path(QUERIES)), "query_id", "text", "split"
    ):
        splits.setdefault(split, Split()).queries[query] = text
    qrels = pq.read_table(collection.artifact.path(QRELS))
    rows = ids.rows(qrels["doc_id"].to_pylist(), missing_ok=True).tolist()
    judgements = tables.rows(qrels, "query_id", "doc_id", "relevance", "split")
    for (query, doc, relevance, split), row in zip(judgements, rows, strict=True):
        splits[split].judged.setdefault(query, {})[doc] = relevance
        splits[split].rows[doc] = row
    return {name: split for name, split in splits.items() if split.queries}


def repeated_across(splits: dict[str, Split]) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """For each two splits (one, other): queries of the other whose text the one has, each with the first such query."""
    for (name, one), (other, two) in combinations(splits.items(), 2):
        texts = by_text(one.queries)
        found = [
            (query, texts[text][0]) for text, group in by_text(two.queries).items() for query in group if text in texts
        ]
        yield name, other, found
