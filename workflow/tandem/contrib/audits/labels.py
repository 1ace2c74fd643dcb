"""Queries and judgements of a dataset, split by split: missing and repeated labels, overlap of splits, holes in runs.

A hole is a result that nobody judged; a hole that repeats a positive of its query must be relevant.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from tandem.contrib.audits.duplicates import EXACT, Duplicates
from tandem.contrib.audits.minhash import normalise_for_equality
from tandem.data import tables
from tandem.data.collection import QRELS, QUERIES, Collection
from tandem.data.columns import Floats
from tandem.data.rows import IdRows, Rows

_QUERIES_AT_ONCE = 1000


@dataclass
class JudgedSplit:
    """A split: texts of its queries, and judgements (query → document → relevance) of those that have any."""

    queries: dict[str, str] = field(default_factory=dict)
    judged: dict[str, dict[str, int]] = field(default_factory=dict)
    # row of every judged passage, -1 if the corpus lacks it
    rows: dict[str, int] = field(default_factory=dict)

    def list_positives(self, query: str) -> list[str]:
        """Return the ids of a query's relevant passages, whether the corpus has them or not."""
        return [doc for doc, relevance in self.judged.get(query, {}).items() if relevance > 0]

    def find_known(self, *queries: str) -> Rows:
        """Return the rows of some queries' relevant passages that are in the corpus, ascending, each once."""
        rows = np.asarray(
            [self.rows[doc] for query in queries for doc in self.list_positives(query)], np.int64
        )
        return np.unique(rows[rows >= 0])

    def list_without_positive(self) -> list[str]:
        """Return judged queries without a relevant judgement."""
        return [query for query in self.judged if not self.list_positives(query)]

    def find_missing(self) -> dict[str, list[str]]:
        """Return query → relevant documents that the corpus lacks, for queries with such documents."""
        missing = {}
        for query in self.judged:
            docs = [doc for doc in self.list_positives(query) if self.rows[doc] < 0]
            if docs:
                missing[query] = docs
        return missing

    def group_by_text(self) -> dict[str, list[str]]:
        """Return normalised text → ids of the queries that have it."""
        groups: dict[str, list[str]] = {}
        for query, text in self.queries.items():
            groups.setdefault(normalise_for_equality(text), []).append(query)
        return groups

    def list_repeated(self) -> list[list[str]]:
        """Return groups of queries with the same normalised text."""
        return [group for group in self.group_by_text().values() if len(group) > 1]

    def count(self) -> dict[str, int]:
        """Return the numbers of queries and judgements, and of faulty ones."""
        missing, repeated = self.find_missing(), self.list_repeated()
        return {
            "queries": len(self.queries),
            "unjudged": len(self.queries) - len(self.judged),
            "judged": len(self.judged),
            "without_positive": len(self.list_without_positive()),
            "judgements": sum(map(len, self.judged.values())),
            "unknown": sum(self.rows[doc] < 0 for docs in self.judged.values() for doc in docs),
            "missing": len(missing),
            "missing_all": sum(not len(self.find_known(query)) for query in missing),
            "repeated_groups": len(repeated),
            "repeated": sum(map(len, repeated)),
        }


def read_splits(collection: Collection, ids: IdRows) -> dict[str, JudgedSplit]:
    """Read every split of a dataset: train, dev and test, then others in the order of its queries."""
    splits = {name: JudgedSplit() for name in ("train", "dev", "test")}
    queries = pq.read_table(collection.artifact.path(QUERIES))
    for query, text, split in tables.iterate_rows(queries, "query_id", "text", "split"):
        splits.setdefault(split, JudgedSplit()).queries[query] = text
    qrels = pq.read_table(collection.artifact.path(QRELS))
    rows = ids.rows(qrels["doc_id"].to_pylist(), missing_ok=True).tolist()
    judgements = tables.iterate_rows(qrels, "query_id", "doc_id", "relevance", "split")
    for (query, doc, relevance, split), row in zip(judgements, rows, strict=True):
        splits[split].judged.setdefault(query, {})[doc] = relevance
        splits[split].rows[doc] = row
    return {name: split for name, split in splits.items() if split.queries}


def find_repeated_across(
    splits: dict[str, JudgedSplit],
) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield (first split, second split), and queries of the second with the first query of equal text in the first."""
    for (name, split), (other, second) in combinations(splits.items(), 2):
        texts = split.group_by_text()
        pairs = []
        for text, queries in second.group_by_text().items():
            if text in texts:
                pairs += [(query, texts[text][0]) for query in queries]
        yield name, other, pairs


@dataclass(frozen=True)
class Overlap:
    """Positives of a split compared with those of train; a positive is in the first of these lists that it fits."""

    positives: Rows  # the split's distinct positives in the corpus
    shared: Rows  # those that are positives of train themselves
    exact: list[tuple[int, int]]  # (positive, training positive) with the same text
    near: list[tuple[int, int]]  # (positive, training positive) that are near-duplicates
    queries: int  # queries of the split with a positive in one of the lists

    def count(self) -> dict[str, int]:
        """Return the lengths of the lists, and the number of queries."""
        return {
            name: value if name == "queries" else len(value) for name, value in vars(self).items()
        }


def find_overlap(train: JudgedSplit, split: JudgedSplit, duplicates: Duplicates) -> Overlap:
    """Find the overlap of a split with train."""
    trained, tested = train.find_known(*train.judged), split.find_known(*split.judged)
    shared = np.intersect1d(tested, trained)
    rest = np.setdiff1d(tested, shared).tolist()

    # The training positive that represents a text is its first one: of equal keys, the value set last remains.
    first = duplicates.first
    backwards = trained[::-1]
    train_by_text = dict(zip(first[backwards].tolist(), backwards.tolist(), strict=True))
    exact = [(row, train_by_text[first[row]]) for row in rest if first[row] in train_by_text]

    rest = np.setdiff1d(rest, [row for row, _ in exact]).astype(np.int64)
    nearest: dict[int, int] = {}  # row that represents a text → the first near training positive
    for row, other in zip(*duplicates.find_near(first[rest].astype(np.int64)), strict=True):
        if other in train_by_text:
            train_row = train_by_text[other]
            nearest[int(row)] = min(train_row, nearest.get(int(row), train_row))
    near = [(row, nearest[first[row]]) for row in rest.tolist() if first[row] in nearest]

    known = {*shared.tolist(), *(row for row, _ in exact), *(row for row, _ in near)}
    queries = sum(not known.isdisjoint(split.find_known(query).tolist()) for query in split.judged)
    return Overlap(tested, shared, exact, near, queries)


class Hint(NamedTuple):
    """An unjudged result that repeats a positive of its query."""

    query: str
    doc: str
    rank: int  # from 1
    positive: int  # its row: the most similar one, of equal ones the first in the corpus
    likeness: float  # by `Duplicates.compare`, never 0


@dataclass
class UnjudgedDepth:
    """Unjudged results of a run down to one rank."""

    # their share of the results, averaged over judged queries; None without judged queries
    hole: float | None = 0.0
    unjudged: int = 0
    exact: int = 0  # those with the text of a positive
    near: int = 0  # those that are near-duplicates of a positive
    queries: int = 0  # queries with any of either


@dataclass
class Holes:
    """Unjudged results of the judged queries of a run."""

    depths: dict[int, UnjudgedDepth]  # by cutoff
    queries: int = 0  # judged queries with results
    missing: int = 0  # judged queries without a result
    examples: list[Hint] = field(default_factory=list)  # the first hints

    def count(self) -> dict[str, object]:
        """Return the counts as JSON."""
        depths = {str(cutoff): asdict(depth) for cutoff, depth in self.depths.items()}
        return {"queries": self.queries, "missing": self.missing, "depths": depths}


def count_holes(
    run: Iterable[tuple[str, Sequence[str], Floats]],
    split: JudgedSplit,
    depths: Sequence[int],
    duplicates: Duplicates,
    ids: IdRows,
    most: int,
) -> Holes:
    """Count a run's unjudged results down to several depths; queries without judgements are left out.

    At most `most` examples are returned. A result that the corpus lacks raises a `UserError`.
    """
    result = Holes({depth: UnjudgedDepth() for depth in depths})
    shares = dict.fromkeys(depths, 0.0)
    judged = ((query, docs[: max(depths)]) for query, docs, _ in run if query in split.judged)
    while tops := dict(islice(judged, _QUERIES_AT_ONCE)):
        hints = list(_find_hints(tops, split, duplicates, ids))
        for cutoff, depth in result.depths.items():
            for query, docs in tops.items():
                top = docs[:cutoff]
                unjudged = sum(doc not in split.judged[query] for doc in top)
                depth.unjudged += unjudged
                # as ir_measures' 1 - `Judged@k`; the denominator of a short list is its own length
                shares[cutoff] += unjudged / len(top)
            within = [hint for hint in hints if hint.rank <= cutoff]
            depth.exact += sum(hint.likeness == EXACT for hint in within)
            depth.near += sum(hint.likeness != EXACT for hint in within)
            depth.queries += len({hint.query for hint in within})
        result.queries += len(tops)
        result.examples += hints[: most - len(result.examples)]
    for cutoff, depth in result.depths.items():
        depth.hole = shares[cutoff] / result.queries if result.queries else None
    result.missing = len(split.judged) - result.queries
    return result


def _find_hints(
    tops: dict[str, Sequence[str]], split: JudgedSplit, duplicates: Duplicates, ids: IdRows
) -> Iterator[Hint]:
    """Yield unjudged results that repeat a positive of their query, by query and rank."""
    open_results: list[tuple[str, str, int]] = []
    for query, docs in tops.items():
        judged = split.judged[query]
        ranked = enumerate(docs, start=1)
        open_results += [(query, doc, rank) for rank, doc in ranked if doc not in judged]
    rows = ids.rows([doc for _, doc, _ in open_results])

    # Each unjudged result is compared with all known positives of its query: pairs in one array, then split by result.
    known = {query: split.find_known(query) for query in tops}
    positives = [known[query] for query, _, _ in open_results]
    counts = np.asarray([len(own) for own in positives], np.int64)
    all_positives = np.concatenate([np.empty(0, np.int64), *positives])
    likeness = np.split(
        duplicates.compare(np.repeat(rows, counts), all_positives), np.cumsum(counts)[:-1]
    )
    for result, own, alike in zip(open_results, positives, likeness, strict=False):
        if alike.size and alike.max() > 0:
            best = int(alike.argmax())
            yield Hint(*result, int(own[best]), float(alike[best]))
