"""The queries a dataset keeps: read, checked, assigned to a split, cut to a number. About 300 bytes a query."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandem.data import select, tables
from tandem.data.dataset import Warnings
from tandem.data.options import Options
from tandem.data.sources import Query
from tandem.data.validate import Hashes, require_unique, require_usable
from tandem.errors import UserError


# ---- tandem.data.queries
@dataclass(frozen=True)
class Queries:
    """Kept queries.

    Attributes:
        texts: query id → text, in the source's order.
        splits: query id → split in this dataset.
        origins: query id → split in the source, whose qrels belong to it.
    """

    texts: dict[str, str]
    splits: dict[str, str]
    origins: dict[str, str]

    def rows(self) -> Iterable[tuple[str, str, str]]:
        """(query id, text, split)."""
        return ((query, text, self.splits[query]) for query, text in self.texts.items())


def read_queries(
    rows: Iterable[Query],
    judged: pa.Table,
    answered: Iterable[str],
    place: str,
    options: Options,
    warnings: Warnings,
) -> Queries:
    """Read a source's queries.

    Args:
        rows: (query id, text, split); where the split is empty the qrels tell it, and a query in none is dropped.
        judged: the source's qrels.
        answered: ids of the questions with answers; without a split and qrels they are the test split.
        place: what to call the queries in an error.
        options: blank queries, numbers of queries, the dev split.
        warnings: takes what was dropped.
    Raises:
        UserError: an unusable or repeated id, a blank query where they are refused, or no query left.
    """
    named, several = select.first_splits(tables.rows(judged, "query_id", "split"))
    named = dict.fromkeys(answered, "test") | named
    texts: dict[str, str] = {}
    origins: dict[str, str] = {}
    ids: list[str] = []
    blank = unjudged = 0
    for number, (query, text, split) in enumerate(rows, start=1):
        require_usable("query", place, number, query)
        ids.append(query)
        if not text.strip():
            if options.blank_queries == "error":
                raise UserError(f"{place}:{number}: query {query} is blank; give it text or set blank_queries: drop")
            blank += 1
        elif split or query in named:
            texts[query], origins[query] = text, split or named[query]
        else:
            unjudged += 1
    require_unique("query", place, ids)
    warnings.count(several, "queries are judged in several splits; the first of test, dev, train keeps them")
    warnings.count(
        len(named.keys() - set(ids)), "queries of the qrels are not among the queries; their qrels are dropped"
    )
    warnings.count(blank, "queries are blank and were dropped")
    warnings.count(unjudged, "queries stand in no qrels and were dropped")
    splits = _choose(origins, options)
    if not splits:
        raise UserError(f"{place}: no query is left; a dataset needs at least one with text and qrels or answers")
    return Queries({query: texts[query] for query in splits}, splits, origins)


def _choose(origins: dict[str, str], options: Options) -> dict[str, str]:
    """Query id → split, after the splits that the source lacks were made and each split cut to its number."""
    splits = origins
    if options.train_from_test is not None:
        splits = select.train_from_test(splits, options.train_from_test)
    if options.dev_from_train is not None:
        splits = select.dev_from_train(splits, options.dev_from_train)
    return select.subset(splits, {split: options.most(split) for split in ("train", "dev", "test")})


# ---- tandem.data.queries
def keep_qrels(judged: pa.Table, queries: Queries, ids: Hashes, options: Options, warnings: Warnings) -> pa.Table:
    """The judgements of kept queries, in the source's order, with the dataset's split names.

    A query's judgements are those of the split it came from. A document judged twice alike for a query counts once.

    Args:
        judged: all judgements of the source.
        queries: the kept queries.
        ids: of the corpus.
        options: what to do about unknown documents.
        warnings: takes what was dropped or is odd.
    Raises:
        UserError: unknown documents where they are refused, or two judgements of a pair that differ.
    """
    table = _once(_of(judged, queries), warnings)
    known = _known(table, ids)
    unknown = int((~known).sum())
    if unknown and options.unknown_documents == "error":
        first = table["doc_id"][int(known.argmin())].as_py()
        found = f"qrels: {unknown:,} judgements name documents that the corpus lacks, the first {first}"
        raise UserError(f"{found}; mend them, or set unknown_documents: warn or drop")
    if unknown and options.unknown_documents == "drop":
        table = table.filter(pa.array(known))
    done = "were dropped" if options.unknown_documents == "drop" else "are kept: no run can find them"
    warnings.count(unknown, f"judgements name documents that the corpus lacks and {done}")
    return pa.Table.from_batches(table.combine_chunks().to_batches(tables.ROWS), tables.QRELS_SCHEMA)


def _of(judged: pa.Table, queries: Queries) -> pa.Table:
    """Judgements of kept queries in the split they came from, under this dataset's split."""
    kept = []
    for batch in judged.to_batches():
        came_from = zip(batch["query_id"].to_pylist(), batch["split"].to_pylist(), strict=True)
        splits = [
            queries.splits.get(query) if queries.origins.get(query) == split else None for query, split in came_from
        ]
        column = pa.array(splits, pa.string())
        kept.append(batch.set_column(3, tables.QRELS_SCHEMA.field(3), column).filter(column.is_valid()))
    return pa.Table.from_batches(kept, tables.QRELS_SCHEMA)


def _once(table: pa.Table, warnings: Warnings) -> pa.Table:
    """Each pair of query and document once; a pair is known by its hash, 8 bytes, and then by itself."""
    pairs, first = Hashes(), np.ones(table.num_rows, bool)
    for batch in table.to_batches():
        pairs.add(zip(batch["query_id"].to_pylist(), batch["doc_id"].to_pylist(), strict=True))
    for one, other in pairs.pairs():
        before, again = (table.slice(row, 1).to_pylist()[0] for row in (one, other))
        query, doc = again["query_id"], again["doc_id"]
        if (before["query_id"], before["doc_id"]) != (query, doc):
            continue
        if before["relevance"] != again["relevance"]:
            both = f"both {before['relevance']} and {again['relevance']}"
            raise UserError(f"qrels: query {query} judges document {doc} {both}; one is allowed")
        first[other] = False
    warnings.count(int((~first).sum()), "judgements repeat an earlier one and were dropped")
    return table if first.all() else table.filter(pa.array(first))


def _known(table: pa.Table, ids: Hashes) -> NDArray[np.bool_]:
    """For each judgement whether the corpus has its document."""
    parts = [ids.has(batch["doc_id"].to_pylist()) for batch in table.to_batches()]
    return np.concatenate([np.ones(0, np.bool_), *parts])
