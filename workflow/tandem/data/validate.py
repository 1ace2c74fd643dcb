"""Check a dataset while it is written: ids, queries with their splits, and judgements.

Ids are stored as 64-bit hashes, 8 bytes each. A duplicate is first a pair of equal hashes and then confirmed on the ids
themselves; membership trusts the hash (a wrong answer among 8.8 million ids has odds of 1 to 10¹²). Finding duplicates
sorts the hashes: about 24 bytes an id at its peak, 220 MB for 8.8 million. Queries take about 300 bytes each.
"""

from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tandem.cluster.progress import say
from tandem.data import tables
from tandem.data.collection import EXCLUDED, LITERAL_MATCH
from tandem.data.sources import Judgement, Query, Source
from tandem.data.splits import USUAL_SPLITS, choose_splits, draw_subset
from tandem.errors import UserError
from tandem.stages.data import DatasetParams
from tandem.store.job import load

LARGEST_GRADE = (
    1_000  # some DCGs have 2 to the power of it as a gain, which float64 holds up to 1,023
)


class TextHashes:
    """Hold 64-bit hashes of texts, or of pairs of them, in the order in which they were added."""

    def __init__(self, texts: Iterable[Hashable] = ()) -> None:
        self._values = array("q", map(hash, texts))
        self._sorted: NDArray[np.int64] = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, texts: Iterable[Hashable]) -> None:
        """Append the hash of each text (Python's own: it differs from process to process, so it is never stored)."""
        self._values.extend(map(hash, texts))

    def array(self) -> NDArray[np.int64]:
        """Return all hashes, int64, without a copy."""
        return np.frombuffer(self._values, np.int64)

    def count_repeats(self) -> int:
        """Count the texts that repeat an earlier one."""
        ordered = np.sort(self.array())
        return int((ordered[1:] == ordered[:-1]).sum())

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield (earlier row, later row), from 0, of neighbours with an equal hash, by the later row."""
        values = self.array()
        ordered = self._in_order()
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        rows = np.flatnonzero(np.isin(values, repeated))
        # Rows of equal hashes together, each group in order.
        grouped = rows[np.argsort(values[rows], kind="stable")]
        same = np.flatnonzero(values[grouped[1:]] == values[grouped[:-1]])
        earlier = grouped[same].tolist()
        later = grouped[same + 1].tolist()
        yield from sorted(zip(earlier, later, strict=True), key=lambda pair: pair[1])

    def has(self, texts: Iterable[str]) -> NDArray[np.bool_]:
        """Return for each text whether it was added."""
        others = TextHashes(texts).array()
        ordered = self._in_order()
        if not len(ordered):
            return np.zeros(len(others), np.bool_)
        # A hash above all others would be looked up behind the end.
        places = np.searchsorted(ordered, others).clip(max=len(ordered) - 1)
        hits: NDArray[np.bool_] = ordered[places] == others
        return hits

    def rows(self, others: "TextHashes") -> NDArray[np.int64]:
        """Return the first row of each of some other hashes; -1 for an unknown hash."""
        distinct, back = np.unique(others.array(), return_inverse=True)
        rows = np.full(len(distinct), -1)
        if len(distinct):
            own = self.array()
            places = np.searchsorted(distinct, own).clip(max=len(distinct) - 1)
            # From the last row to the first: of several values for one place numpy keeps the last, here the first row.
            hits = np.flatnonzero(distinct[places] == own)[::-1]
            rows[places[hits]] = hits
        return rows[back]

    def _in_order(self) -> NDArray[np.int64]:
        """Return the hashes, sorted; cached, as training lists look up a few at a time."""
        if len(self._sorted) != len(self):
            self._sorted = np.sort(self.array())
        return self._sorted


def require_unique(what: str, place: str, hashes: TextHashes, id_at: Callable[[int], str]) -> None:
    """Refuse ids that occur twice; `id_at` gives the id of a row from 0, `what` and `place` are for the message."""
    for first, second in hashes.pairs():
        if id_at(first) == id_at(second):
            again = f"{place}:{second + 1}: {what} id {id_at(second)!r} again, first at {first + 1}"
            raise UserError(f"{again}; every id must be unique")


def require_usable(what: str, place: str, first: int, *ids: str) -> None:
    """Refuse ids that a run file or trec_eval could not carry: empty ones, or with white space or a null character.

    The first id is in row `first`.
    """
    text = " ".join(ids)
    if "\0" not in text and text.split() == list(ids):
        return
    for row, name in enumerate(ids, start=first):
        if "\0" in name or name.split() != [name]:
            error = (
                f"{place}:{row}: {what} id {name!r}; an id must not be empty or hold white space"
            )
            raise UserError(f"{error} or a null character")


class Warnings:
    """Collect warnings about what a stage reads; `label` is the stage's kind and key."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Print a warning, and store it for the manifest."""
        self.lines.append(line)
        say(f"{self.label} · warning: {line}")

    def count(self, number: int, what: str) -> None:
        """Warn of `number` times `what`, unless there are none."""
        if number:
            self.add(f"{number:,} {what}")


@dataclass(frozen=True)
class SelectedQueries:
    """Hold selected queries by id, in the source's order: texts, splits here, and splits in the source."""

    texts: dict[str, str]
    splits: dict[str, str]
    origins: dict[str, str]

    def rows(self) -> Iterable[Query]:
        """Return (query id, text, split) of each query."""
        return ((query, text, self.splits[query]) for query, text in self.texts.items())


def tabulate_judgements(rows: Iterable[Judgement]) -> pa.Table:
    """Return all judgements as a table.

    Raises:
        UserError: a relevance that is not a whole number of 32 bits, which Arrow would cut to one; `1.0` is 1.
    """
    require_whole_grades = load("extras.whole_labels:require_whole_grades")
    return tables.make_table(require_whole_grades(rows), tables.QRELS_SCHEMA)


def prepare_queries(
    rows: Iterable[Query],
    judged: pa.Table,
    answered: Collection[str],
    source: Source,
    params: DatasetParams,
    warnings: Warnings,
) -> SelectedQueries:
    """Read a source's queries; one without a split gets that of its qrels, and without qrels it is dropped.

    Args:
        answered: ids of the questions with answers; those without a split and qrels are in the test split.
    Raises:
        UserError: an unusable or repeated id, a blank query where they are refused, most of a split's judgements about
            unknown queries, or no query left.
    """
    place = source.places["queries"]
    of_qrels, several = choose_splits(tables.iterate_rows(judged, "query_id", "split"))
    named = dict.fromkeys(answered, "test") | of_qrels
    texts: dict[str, str] = {}
    origins: dict[str, str] = {}
    ids: list[str] = []
    blank = 0
    unjudged = 0
    split_by_file = 0  # queries that several splits judge, and whose file decides
    for number, (query, text, split) in enumerate(rows, start=1):
        require_usable("query", place, number, query)
        ids.append(query)
        if not text.strip():
            if params.blank_queries == "error":
                raise UserError(
                    f"{place}:{number}: query {query} is blank; give it text or set blank_queries: drop"
                )
            blank += 1
        elif split or query in named:
            texts[query] = text
            origins[query] = split or named[query]
            split_by_file += bool(split) and query in several
        else:
            unjudged += 1
    require_unique("query", place, TextHashes(ids), ids.__getitem__)
    _require_known_queries(judged, ids, source)

    judged_twice = "queries are judged in several splits;"
    warnings.count(
        len(several) - split_by_file, f"{judged_twice} the first of test, dev, train keeps them"
    )
    warnings.count(split_by_file, f"{judged_twice} that of their file keeps them")
    for names, part in ((of_qrels, "qrels"), (answered, "answers")):
        unknown = len(set(names).difference(ids))
        warnings.count(
            unknown, f"queries of the {part} are not among the queries; their {part} are dropped"
        )
    warnings.count(blank, "queries are blank and were dropped")
    warnings.count(unjudged, "queries stand in no qrels and were dropped")

    splits = origins
    if params.train_from_test is not None or params.dev_from_train is not None:
        splits = load("extras.drawn_splits:draw_splits")(splits, params)
    limits = {split: params.most_queries(split) for split in USUAL_SPLITS}
    splits = draw_subset(splits, limits)
    if not splits:
        raise UserError(
            f"{place}: no query is left; a dataset needs at least one with text and qrels or answers"
        )
    selected = {query: texts[query] for query in splits}
    return SelectedQueries(selected, splits, origins)


def _require_known_queries(judged: pa.Table, ids: list[str], source: Source) -> None:
    known = pc.is_in(judged["query_id"], value_set=pa.array(ids, pa.string())).to_numpy()
    match = find_mostly_unknown(judged, known)
    if match is None:
        return
    split, count, row = match
    query = judged["query_id"][row].as_py()
    doc = judged["doc_id"][row].as_py()
    what = f"{count} judgements of split {split} name queries that {source.places['queries']} lacks"
    error = f"{source.locate_judgement(query, doc)}: {what}, the first {query}"
    raise UserError(f"{error}; mend the order of their columns, or give their queries")


def find_mostly_unknown(judged: pa.Table, known: NDArray[np.bool_]) -> tuple[str, str, int] | None:
    """Find the first split with more unknown judgements than known ones.

    Returned are its name, `3 of 5`, and the row of an unknown one.
    """
    for split in judged["split"].unique().to_pylist():
        rows = np.flatnonzero(pc.equal(judged["split"], split).to_numpy())
        unknown = rows[~known[rows]]
        if 2 * len(unknown) > len(rows):
            return split, f"{len(unknown):,} of {len(rows):,}", int(unknown[0])
    return None


def select_qrels(
    judged: pa.Table,
    queries: SelectedQueries,
    ids: TextHashes,
    params: DatasetParams,
    warnings: Warnings,
    source: Source,
) -> pa.Table:
    """Return the judgements of selected queries, in the source's order, with the dataset's split names.

    A query's judgements are those of the split it came from. A document judged twice alike for a query counts once.

    Raises:
        UserError: unknown documents if they are refused; unknown documents in most of a split's judgements, unless
            they are dropped; or two judgements of a pair that differ.
    """
    of_queries, elsewhere = _select_of_queries(judged, queries)
    warnings.count(elsewhere, "queries have judgements in other splits alone, which were dropped")
    table = _drop_repeats(of_queries, warnings, source)

    parts = [ids.has(batch["doc_id"].to_pylist()) for batch in table.to_batches()]
    known: NDArray[np.bool_] = np.concatenate([np.ones(0, np.bool_), *parts])
    unknown = int((~known).sum())
    done = "are kept: no run can find them"
    if params.unknown_documents == "drop":
        done = "were dropped"
        if unknown:
            table = table.filter(pa.array(known))
    elif unknown:
        _require_known_documents(table, known, params, source)
    warnings.count(unknown, f"judgements name documents that the corpus lacks and {done}")
    return pa.Table.from_batches(
        table.combine_chunks().to_batches(tables.ROWS_PER_GROUP), tables.QRELS_SCHEMA
    )


def _require_known_documents(
    table: pa.Table, known: NDArray[np.bool_], params: DatasetParams, source: Source
) -> None:
    """Refuse judgements of unknown documents: most of a split's, or any where `unknown_documents` says so."""
    match = find_mostly_unknown(table, known)
    if match is None and params.unknown_documents != "error":
        return
    if match is None:
        what = f"{int((~known).sum()):,} judgements"
        row = int(known.argmin())
        allowed = "warn or drop"
    else:
        split, count, row = match
        what = f"{count} judgements of split {split}"
        allowed = "drop"
    query = table["query_id"][row].as_py()
    doc = table["doc_id"][row].as_py()
    place = source.locate_judgement(query, doc)
    error = f"{place}: {what} name documents that the corpus lacks, the first {doc}"
    raise UserError(f"{error}; mend them, or set unknown_documents: {allowed}")


def _select_of_queries(judged: pa.Table, queries: SelectedQueries) -> tuple[pa.Table, int]:
    """Return the judgements of selected queries in the split they came from, under this dataset's split.

    Also returned: how many of the source's queries have judgements, but none in the split that they came from.
    """
    batches: list[pa.RecordBatch] = []
    named: set[str] = set()
    of_own_split: set[str] = set()
    for batch in judged.to_batches():
        ids = batch["query_id"].to_pylist()
        splits: list[str | None] = []
        for query, split in zip(ids, batch["split"].to_pylist(), strict=True):
            is_own = queries.origins.get(query) == split
            splits.append(queries.splits.get(query) if is_own else None)
            if is_own:
                of_own_split.add(query)
        named.update(ids)
        column = pa.array(splits, pa.string())
        renamed = batch.set_column(3, tables.QRELS_SCHEMA.field(3), column)
        batches.append(renamed.filter(column.is_valid()))
    elsewhere = (named & queries.origins.keys()) - of_own_split
    return pa.Table.from_batches(batches, tables.QRELS_SCHEMA), len(elsewhere)


def require_positives(qrels: pa.Table) -> None:
    """Refuse a split without any relevant judgement: nothing could be scored or trained on it."""
    if not qrels.num_rows:
        raise UserError(
            "qrels: none is left; name the splits of queries and qrels alike, and give known passages"
        )
    for split in qrels["split"].unique().to_pylist():
        grades = qrels.filter(pc.equal(qrels["split"], split))["relevance"]
        if pc.max(grades).as_py() <= 0:
            error = f"qrels: none of the {len(grades):,} judgements of split {split} is above 0"
            raise UserError(f"{error}; a split needs a relevant passage")


def refuse_large_grades(qrels: pa.Table, source: Source) -> None:
    """Refuse a relevance that no scale has, such as a date: measures would overflow, or take all memory."""
    large = qrels.filter(pc.greater(qrels["relevance"], LARGEST_GRADE)).slice(0, 1).to_pylist()
    for row in large:
        where = source.locate_judgement(row["query_id"], row["doc_id"])
        raise UserError(
            f"{where}: relevance is {row['relevance']:,}; at most {LARGEST_GRADE:,} is allowed, is it another column?"
        )


def count_negative_grades(qrels: pa.Table, literal_matches: bool, warnings: Warnings) -> None:
    """Warn of grades below 0, but not of `EXCLUDED`, nor of `LITERAL_MATCH` where `literal_matches` allows it."""
    grades = qrels["relevance"]
    literal = pc.equal(grades, LITERAL_MATCH)
    below = pc.and_not(pc.less(grades, 0), pc.equal(grades, EXCLUDED))
    irrelevant = pc.sum(pc.and_not(below, literal)).as_py() or 0
    warnings.count(irrelevant, "judgements are below 0 and count as not relevant")
    if not literal_matches:
        done = f"judgements are {LITERAL_MATCH}: their passages are neither relevant nor ever taken as negatives"
        warnings.count(pc.sum(literal).as_py() or 0, done)


def _drop_repeats(table: pa.Table, warnings: Warnings, source: Source) -> pa.Table:
    """Return each pair of query and document once; pairs are compared by hashes of 8 bytes, and then in full."""
    pairs = TextHashes()
    for batch in table.to_batches():
        pairs.add(zip(batch["query_id"].to_pylist(), batch["doc_id"].to_pylist(), strict=True))

    is_first = np.ones(table.num_rows, bool)
    for earlier, later in pairs.pairs():
        before = table.slice(earlier, 1).to_pylist()[0]
        again = table.slice(later, 1).to_pylist()[0]
        query = again["query_id"]
        doc = again["doc_id"]
        if (before["query_id"], before["doc_id"]) != (query, doc):
            continue
        if before["relevance"] != again["relevance"]:
            both = f"both {before['relevance']} and {again['relevance']}"
            where = source.locate_judgement(query, doc)
            raise UserError(f"{where}: query {query} judges document {doc} {both}; one is allowed")
        is_first[later] = False
    warnings.count(int((~is_first).sum()), "judgements repeat an earlier one and were dropped")
    return table if is_first.all() else table.filter(pa.array(is_first))
