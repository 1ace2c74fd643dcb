"""What only some sources have: answers of questions, and training lists of their own."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter

import pyarrow as pa

from tandem.data import tables
from tandem.data.collection import ANSWERS, LISTS
from tandem.data.queries import Queries
from tandem.data.sources import Listed
from tandem.data.validate import Hashes, require_unique
from tandem.data.warnings import Warnings
from tandem.errors import UserError
from tandem.store.job import Draft


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
    counts: Counter[str] = Counter()
    parts = tables.batches(_kept(_together(rows), queries, ids, counts), tables.LISTS_SCHEMA)
    first = next(parts, None)
    if first is not None:
        tables.write(draft.path(LISTS), chain([first], parts), tables.LISTS_SCHEMA)
    dropped = "rows of training lists name documents or queries that are not kept and were dropped"
    warnings.count(counts["dropped"], dropped)
    return counts["kept"]


def _together(rows: Iterable[Listed]) -> Iterator[Listed]:
    """The rows, unchanged; a `UserError` where a query's are not together."""
    done: set[str] = set()
    for query, group in groupby(rows, key=itemgetter(0)):
        if query in done:
            raise UserError(f"lists: query {query} again; the rows of a query must stand together")
        done.add(query)
        yield from group


def _kept(rows: Iterable[Listed], queries: Queries, ids: Hashes, counts: Counter[str]) -> Iterator[Listed]:
    """The rows whose query and document are kept; `counts` takes how many are `kept` and `dropped`."""
    for columns in tables.columns(rows):
        for row, is_known in zip(zip(*columns, strict=True), ids.has(columns[1]).tolist(), strict=True):
            is_kept = is_known and row[0] in queries.splits
            counts["kept" if is_kept else "dropped"] += 1
            if is_kept:
                yield row
