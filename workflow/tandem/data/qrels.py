"""The judgements a dataset keeps: those of its queries, once each, with documents the corpus has (or a warning)."""

from collections.abc import Iterator

import pyarrow as pa

from tandem.data import tables
from tandem.data.options import Options
from tandem.data.queries import Queries
from tandem.data.validate import Hashes
from tandem.data.warnings import Warnings
from tandem.errors import UserError

Judgement = tuple[str, str, int, str]


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
    table = tables.gather(_once(_of(judged, queries), warnings), tables.QRELS_SCHEMA)
    known = ids.has(table["doc_id"].to_pylist())
    unknown = int((~known).sum())
    if unknown and options.unknown_documents == "error":
        first = table["doc_id"][int(known.argmin())].as_py()
        found = f"qrels: {unknown:,} judgements name documents that the corpus lacks, the first {first}"
        raise UserError(f"{found}; mend them, or set unknown_documents: warn or drop")
    if unknown and options.unknown_documents == "drop":
        table = tables.gather(
            (row for row, is_known in zip(tables.rows(table), known.tolist(), strict=True) if is_known),
            tables.QRELS_SCHEMA,
        )
    done = "were dropped" if options.unknown_documents == "drop" else "are kept: no run can find them"
    warnings.count(unknown, f"judgements name documents that the corpus lacks and {done}")
    return table


def _of(judged: pa.Table, queries: Queries) -> Iterator[Judgement]:
    """Judgements of kept queries in the split they came from."""
    for query, doc, relevance, split in tables.rows(judged):
        if query in queries.splits and queries.origins[query] == split:
            yield query, doc, relevance, queries.splits[query]


def _once(rows: Iterator[Judgement], warnings: Warnings) -> Iterator[Judgement]:
    """Each pair of query and document once."""
    seen: dict[tuple[str, str], int] = {}
    repeated = 0
    for query, doc, relevance, split in rows:
        before = seen.get((query, doc))
        if before is None:
            seen[query, doc] = relevance
            yield query, doc, relevance, split
        elif before == relevance:
            repeated += 1
        else:
            raise UserError(f"qrels: query {query} judges document {doc} both {before} and {relevance}; one is allowed")
    warnings.count(repeated, "judgements repeat an earlier one and were dropped")
