"""The judgements a dataset keeps: those of its queries, once each, with documents the corpus has (or a warning)."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandem.data import tables
from tandem.data.options import Options
from tandem.data.queries import Queries
from tandem.data.validate import Hashes
from tandem.data.warnings import Warnings
from tandem.errors import UserError


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
