"""The queries and judgements of a dataset: read, checked, assigned to splits, cut to a number.

About 300 bytes a query are held in memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandem.cluster.progress import say
from tandem.data import tables
from tandem.data.sources import Query
from tandem.data.splits import USUAL, first_splits, move_share, subset
from tandem.data.validate import Hashes, require_unique, require_usable
from tandem.errors import UserError
from tandem.stages.data import DatasetParams


class Warnings:
    """Oddities of one dataset that are no mistakes, in the order they arose: printed once, then for its manifest."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Print and store a warning."""
        self.lines.append(line)
        say(f"dataset {self.key} · warning: {line}")

    def count(self, number: int, what: str) -> None:
        """Warn of `number` times `what`, unless there are none."""
        if number:
            self.add(f"{number:,} {what}")


@dataclass(frozen=True)
class Queries:
    """Selected queries by id, in the source's order: their texts, their splits here and their splits in the source."""

    texts: dict[str, str]
    splits: dict[str, str]
    origins: dict[str, str]

    def rows(self) -> Iterable[Query]:
        """(query id, text, split)."""
        return ((query, text, self.splits[query]) for query, text in self.texts.items())


def read_queries(
    rows: Iterable[Query],
    judged: pa.Table,
    answered: Iterable[str],
    place: str,
    params: DatasetParams,
    warnings: Warnings,
) -> Queries:
    """Read a source's queries; those without a split have that of their qrels, and in none are dropped.

    Args:
        answered: ids of the questions with answers; without a split and qrels they are the test split.
        place: name of the queries in an error.
    Raises:
        UserError: an unusable or repeated id, a blank query where they are refused, or no query left.
    """
    named, several = first_splits(tables.rows(judged, "query_id", "split"))
    named = dict.fromkeys(answered, "test") | named
    texts, origins, ids = dict[str, str](), dict[str, str](), list[str]()
    blank = unjudged = 0
    for number, (query, text, split) in enumerate(rows, start=1):
        require_usable("query", place, number, query)
        ids.append(query)
        if not text.strip():
            if params.blank_queries == "error":
                raise UserError(f"{place}:{number}: query {query} is blank; give it text or set blank_queries: drop")
            blank += 1
        elif split or query in named:
            texts[query], origins[query] = text, split or named[query]
        else:
            unjudged += 1
    require_unique("query", place, ids)
    unknown = len(named.keys() - set(ids))
    warnings.count(several, "queries are judged in several splits; the first of test, dev, train keeps them")
    warnings.count(unknown, "queries of the qrels are not among the queries; their qrels are dropped")
    warnings.count(blank, "queries are blank and were dropped")
    warnings.count(unjudged, "queries stand in no qrels and were dropped")
    splits = origins
    if params.train_from_test is not None:
        splits = move_share(splits, params.train_from_test, "test", "train")
    if params.dev_from_train is not None:
        splits = move_share(splits, params.dev_from_train, "train", "dev")
    splits = subset(splits, {split: params.most_queries(split) for split in USUAL})
    if not splits:
        raise UserError(f"{place}: no query is left; a dataset needs at least one with text and qrels or answers")
    return Queries({query: texts[query] for query in splits}, splits, origins)


def select_qrels(
    judged: pa.Table, queries: Queries, ids: Hashes, params: DatasetParams, warnings: Warnings
) -> pa.Table:
    """The judgements of selected queries, in the source's order, with the dataset's split names.

    A query's judgements are those of the split it came from. A document judged twice alike for a query counts once.

    Raises:
        UserError: unknown documents where they are refused, or two judgements of a pair that differ.
    """
    table = _without_repeats(_of_queries(judged, queries), warnings)
    parts = [ids.has(batch["doc_id"].to_pylist()) for batch in table.to_batches()]
    known: NDArray[np.bool_] = np.concatenate([np.ones(0, np.bool_), *parts])
    unknown = int((~known).sum())
    if unknown and params.unknown_documents == "error":
        first = table["doc_id"][int(known.argmin())].as_py()
        error = f"qrels: {unknown:,} judgements name documents that the corpus lacks, the first {first}"
        raise UserError(f"{error}; mend them, or set unknown_documents: warn or drop")
    if unknown and params.unknown_documents == "drop":
        table = table.filter(pa.array(known))
    done = "were dropped" if params.unknown_documents == "drop" else "are kept: no run can find them"
    warnings.count(unknown, f"judgements name documents that the corpus lacks and {done}")
    return pa.Table.from_batches(table.combine_chunks().to_batches(tables.ROWS), tables.QRELS_SCHEMA)


def _of_queries(judged: pa.Table, queries: Queries) -> pa.Table:
    """Judgements of selected queries in the split they came from, under this dataset's split."""
    batches = []
    for batch in judged.to_batches():
        came_from = zip(batch["query_id"].to_pylist(), batch["split"].to_pylist(), strict=True)
        splits = (queries.splits.get(q) if queries.origins.get(q) == split else None for q, split in came_from)
        column = pa.array(splits, pa.string())
        batches.append(batch.set_column(3, tables.QRELS_SCHEMA.field(3), column).filter(column.is_valid()))
    return pa.Table.from_batches(batches, tables.QRELS_SCHEMA)


def _without_repeats(table: pa.Table, warnings: Warnings) -> pa.Table:
    """Each pair of query and document once; pairs are compared by hashes of 8 bytes, and then in full."""
    pairs, first = Hashes(), np.ones(table.num_rows, bool)
    for batch in table.to_batches():
        pairs.add(zip(batch["query_id"].to_pylist(), batch["doc_id"].to_pylist(), strict=True))
    for row, other in pairs.pairs():
        before, again = (table.slice(at, 1).to_pylist()[0] for at in (row, other))
        query, doc = again["query_id"], again["doc_id"]
        if (before["query_id"], before["doc_id"]) != (query, doc):
            continue
        if before["relevance"] != again["relevance"]:
            both = f"both {before['relevance']} and {again['relevance']}"
            raise UserError(f"qrels: query {query} judges document {doc} {both}; one is allowed")
        first[other] = False
    warnings.count(int((~first).sum()), "judgements repeat an earlier one and were dropped")
    return table if first.all() else table.filter(pa.array(first))
