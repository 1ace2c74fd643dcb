"""Checks of a dataset as it is written: ids, and queries with their splits.

Ids are stored as 64-bit hashes, 8 bytes each. A duplicate is first a pair of equal hashes and then confirmed on the ids
themselves; membership trusts the hash (a wrong answer among 8.8 million ids has odds of 1 to 10¹²). Finding duplicates
sorts the hashes: about 24 bytes an id at its peak, 220 MB for 8.8 million. Queries take about 300 bytes each.
"""

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tandem.cluster.progress import say
from tandem.data import tables
from tandem.data.sources import Query, Source
from tandem.data.splits import USUAL, first_splits, move_share, subset
from tandem.errors import UserError
from tandem.stages.data import DatasetParams


class Hashes:
    """64-bit hashes of texts, or of pairs of them, in the order they came."""

    def __init__(self) -> None:
        self._values = array("q")
        self._sorted: NDArray[np.int64] = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, texts: Iterable[Hashable]) -> None:
        """Append the hash of each text (Python's own: it differs from process to process, so it is never stored)."""
        self._values.extend(map(hash, texts))

    def array(self) -> NDArray[np.int64]:
        """All hashes, int64, without a copy."""
        return np.frombuffer(self._values, np.int64)

    def count_repeats(self) -> int:
        """How many texts repeat an earlier one."""
        ordered = np.sort(self.array())
        return int((ordered[1:] == ordered[:-1]).sum())

    def pairs(self) -> Iterator[tuple[int, int]]:
        """(earlier row, later row), from 0, of neighbours with an equal hash, by the later row."""
        values = self.array()
        ordered = self._in_order()
        twice = np.flatnonzero(np.isin(values, ordered[1:][ordered[1:] == ordered[:-1]]))
        again = twice[np.argsort(values[twice], kind="stable")]
        at = np.flatnonzero(values[again[1:]] == values[again[:-1]])
        yield from sorted(zip(again[at].tolist(), again[at + 1].tolist(), strict=True), key=lambda pair: pair[1])

    def has(self, texts: Iterable[str]) -> NDArray[np.bool_]:
        """For each text whether it was added."""
        others, ordered = Hashes(), self._in_order()
        others.add(texts)
        if not len(ordered):
            return np.zeros(len(others), np.bool_)
        at = np.searchsorted(ordered, others.array()).clip(max=len(ordered) - 1)
        hits: NDArray[np.bool_] = ordered[at] == others.array()
        return hits

    def rows(self, others: "Hashes") -> NDArray[np.int64]:
        """The first row of each of some other hashes, -1 for an unknown one."""
        distinct, back = np.unique(others.array(), return_inverse=True)
        rows = np.full(len(distinct), -1)
        if len(distinct):
            at = np.searchsorted(distinct, self.array()).clip(max=len(distinct) - 1)
            hits = np.flatnonzero(distinct[at] == self.array())[::-1]  # of repeated values the last one wins
            rows[at[hits]] = hits
        return rows[back]

    def _in_order(self) -> NDArray[np.int64]:
        """The hashes, sorted; cached, as training lists look up a few at a time."""
        if len(self._sorted) != len(self):
            self._sorted = np.sort(self.array())
        return self._sorted


def first_occurrences(values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """For each value whether no earlier one equals it."""
    first = np.zeros(len(values), np.bool_)
    first[np.unique(values, return_index=True)[1]] = True
    return first


def require_unique_hashes(what: str, place: str, hashes: Hashes, id_at: Callable[[int], str]) -> None:
    """Refuse ids that occur twice; `id_at` gives the id of a row from 0, `what` and `place` are for the message."""
    for first, second in hashes.pairs():
        if id_at(first) == id_at(second):
            again = f"{place}:{second + 1}: {what} id {id_at(second)!r} again, first at {first + 1}"
            raise UserError(f"{again}; every id must be unique")


def require_unique(what: str, place: str, ids: list[str]) -> None:
    """`require_unique_hashes` of ids that are in memory."""
    hashes = Hashes()
    hashes.add(ids)
    require_unique_hashes(what, place, hashes, ids.__getitem__)


def require_usable(what: str, place: str, first: int, *ids: str) -> None:
    """Refuse ids that a run file could not carry: empty ones, or with white space; the first is in row `first`."""
    if " ".join(ids).split() != list(ids):
        row, name = next((row, name) for row, name in enumerate(ids, start=first) if name.split() != [name])
        raise UserError(f"{place}:{row}: {what} id {name!r}; an id must not be empty or hold white space")


class Warnings:
    """Oddities of what a stage reads that are no mistakes, as they arise: printed once, then for its manifest.

    `label` is the stage's kind and key.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Print and store a warning."""
        self.lines.append(line)
        say(f"{self.label} · warning: {line}")

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
    source: Source,
    params: DatasetParams,
    warnings: Warnings,
) -> Queries:
    """Read a source's queries; those without a split have that of their qrels, and in none are dropped.

    Args:
        answered: ids of the questions with answers; without a split and qrels they are the test split.
        source: tells the places of queries and judgements, for errors.
    Raises:
        UserError: an unusable or repeated id, a blank query where they are refused, most of a split's judgements about
            unknown queries, or no query left.
    """
    place = source.places["queries"]
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
    require_known_queries(judged, ids, source)
    unknown = len(named.keys() - set(ids))
    warnings.count(several, "queries are judged in several splits; the first of test, dev, train keeps them")
    warnings.count(unknown, "queries of the qrels are not among the queries; their qrels are dropped")
    warnings.count(blank, "queries are blank and were dropped")
    warnings.count(unjudged, "queries stand in no qrels and were dropped")
    splits = origins
    if params.train_from_test is not None:
        splits = move_share(splits, params.train_from_test, "test", "train")
    if params.dev_from_train is not None:
        splits = move_share(splits, params.dev_from_train, "train", "dev", params.dev_from_train_most)
    splits = subset(splits, {split: params.most_queries(split) for split in USUAL})
    if not splits:
        raise UserError(f"{place}: no query is left; a dataset needs at least one with text and qrels or answers")
    return Queries({query: texts[query] for query in splits}, splits, origins)


def require_known_queries(judged: pa.Table, ids: list[str], source: Source) -> None:
    """Refuse qrels most of whose judgements, in a split, name queries that are not among `ids`."""
    known = pc.is_in(judged["query_id"], value_set=pa.array(ids, pa.string())).to_numpy()
    if match := mostly_unknown(judged, known):
        split, count, row = match
        query, doc = judged["query_id"][row].as_py(), judged["doc_id"][row].as_py()
        what = f"{count} judgements of split {split} name queries that {source.places['queries']} lacks"
        error = f"{source.judged_at(query, doc)}: {what}, the first {query}"
        raise UserError(f"{error}; mend the order of their columns, or give their queries")


def mostly_unknown(judged: pa.Table, known: NDArray[np.bool_]) -> tuple[str, str, int] | None:
    """The first split with more unknown judgements than known ones: its name, `3 of 5`, the row of an unknown one."""
    for split in judged["split"].unique().to_pylist():
        rows = np.flatnonzero(pc.equal(judged["split"], split).to_numpy())
        unknown = rows[~known[rows]]
        if 2 * len(unknown) > len(rows):
            return split, f"{len(unknown):,} of {len(rows):,}", int(unknown[0])
    return None
