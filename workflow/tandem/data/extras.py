"""What only some sources have: answers of questions, and training lists of their own."""

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa

from tandem.artifact import Draft
from tandem.data import tables
from tandem.data.collection import ANSWERS, LISTS
from tandem.data.queries import Queries
from tandem.data.sources import Listed
from tandem.data.validate import Hashes, require_unique
from tandem.data.warnings import Warnings
from tandem.errors import UserError


def keep_answers(answers: pa.Table, queries: Queries, draft: Draft, warnings: Warnings) -> int:
    """Write answers.parquet with the answers of kept queries, unless the source has none.

    Returns:
        The number of queries with answers.
    Raises:
        UserError: a query with two sets of answers.
    """
    if answers.num_rows == 0:
        return 0
    require_unique("query", "answers", answers["query_id"].to_pylist())
    kept = [(query, told) for query, told in tables.rows(answers) if query in queries.splits]
    warnings.count(sum(not any(one.strip() for one in told) for _, told in kept), "questions have no answer text")
    tables.write(draft.path(ANSWERS), tables.batches(kept, tables.ANSWERS_SCHEMA), tables.ANSWERS_SCHEMA)
    return len(kept)


def keep_lists(rows: Iterable[Listed], queries: Queries, ids: Hashes, draft: Draft, warnings: Warnings) -> int:
    """Write lists.parquet with the source's training lists, unless it has none; what the corpus lacks is dropped.

    Returns:
        The number of rows written.
    Raises:
        UserError: a query whose rows are not together.
    """
    unknown = 0
    written = 0

    def known() -> Iterator[Listed]:
        nonlocal unknown, written
        done: set[str] = set()
        before = None
        for batch in tables.batches(rows, tables.LISTS_SCHEMA):
            there = ids.has(batch["doc_id"].to_pylist()).tolist()
            for row, is_known in zip(zip(*(c.to_pylist() for c in batch.columns), strict=True), there, strict=True):
                query = row[0]
                if query != before:
                    if query in done:
                        raise UserError(f"lists: query {query} again; the rows of a query must stand together")
                    done.add(query)
                    before = query
                if query in queries.splits and is_known:
                    written += 1
                    yield row
                else:
                    unknown += 1

    parts = tables.batches(known(), tables.LISTS_SCHEMA)
    first = next(parts, None)
    if first is not None:
        tables.write(draft.path(LISTS), chain([first], parts), tables.LISTS_SCHEMA)
    warnings.count(unknown, "rows of training lists name documents or queries that are not kept and were dropped")
    return written
