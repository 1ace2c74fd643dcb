"""The queries a dataset keeps: read, checked, assigned to a split, cut to a number. About 300 bytes a query."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from tandem.data import select, tables
from tandem.data.options import Options
from tandem.data.sources import Query
from tandem.data.validate import require_unique, require_usable
from tandem.data.warnings import Warnings
from tandem.errors import UserError


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
