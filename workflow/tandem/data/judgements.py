"""A dataset's judgements as it is written: what they name, repeats, contradictions, grades, near-duplicates.

Inherited and copied texts answer a query as well as the judged passage does; as unjudged passages they count as wrong
in scoring, and as negatives in training (DuReader-retrieval §2.3 names such false negatives).
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tandem.data import tables
from tandem.data.collection import EXCLUDED, LITERAL_MATCH, contents
from tandem.data.sources import Source
from tandem.data.text import Grams, similarity, trigrams
from tandem.data.validate import Hashes, Queries, Warnings, mostly_unknown
from tandem.errors import UserError
from tandem.stages.data import DatasetParams


def select_qrels(
    judged: pa.Table, queries: Queries, ids: Hashes, params: DatasetParams, warnings: Warnings, source: Source
) -> pa.Table:
    """The judgements of selected queries, in the source's order, with the dataset's split names.

    A query's judgements are those of the split it came from. A document judged twice alike for a query counts once.

    Raises:
        UserError: unknown documents where they are refused, or most of a split's unless they are dropped; or two
            judgements of a pair that differ.
    """
    elsewhere = _judged_elsewhere(judged, queries)
    warnings.count(elsewhere, "queries have judgements in other splits alone, which were dropped")
    table = _without_repeats(_of_queries(judged, queries), warnings, source)
    parts = [ids.has(batch["doc_id"].to_pylist()) for batch in table.to_batches()]
    known: NDArray[np.bool_] = np.concatenate([np.ones(0, np.bool_), *parts])
    unknown = int((~known).sum())
    if unknown and params.unknown_documents != "drop":
        split, count, row = mostly_unknown(table, known) or ("", f"{unknown:,}", int(known.argmin()))
        if split or params.unknown_documents == "error":
            query, first = table["query_id"][row].as_py(), table["doc_id"][row].as_py()
            what = f"{count} judgements{split and f' of split {split}'}"
            error = f"{source.judged_at(query, first)}: {what} name documents that the corpus lacks, the first {first}"
            also = "" if split else "warn or "
            raise UserError(f"{error}; mend them, or set unknown_documents: {also}drop")
    if unknown and params.unknown_documents == "drop":
        table = table.filter(pa.array(known))
    done = "were dropped" if params.unknown_documents == "drop" else "are kept: no run can find them"
    warnings.count(unknown, f"judgements name documents that the corpus lacks and {done}")
    return pa.Table.from_batches(table.combine_chunks().to_batches(tables.ROWS), tables.QRELS_SCHEMA)


def _judged_elsewhere(judged: pa.Table, queries: Queries) -> int:
    """How many of the source's queries have judgements, and none in the split that they came from."""
    elsewhere, own = set[str](), set[str]()
    for query, split in tables.rows(judged, "query_id", "split"):
        if query in queries.origins:
            (own if queries.origins[query] == split else elsewhere).add(query)
    return len(elsewhere - own)


def _of_queries(judged: pa.Table, queries: Queries) -> pa.Table:
    """Judgements of selected queries in the split they came from, under this dataset's split."""
    batches = []
    for batch in judged.to_batches():
        came_from = zip(batch["query_id"].to_pylist(), batch["split"].to_pylist(), strict=True)
        splits = (queries.splits.get(q) if queries.origins.get(q) == split else None for q, split in came_from)
        column = pa.array(splits, pa.string())
        batches.append(batch.set_column(3, tables.QRELS_SCHEMA.field(3), column).filter(column.is_valid()))
    return pa.Table.from_batches(batches, tables.QRELS_SCHEMA)


def require_positives(qrels: pa.Table) -> None:
    """Refuse a split without any relevant judgement: nothing could be scored or trained on it."""
    if not qrels.num_rows:
        raise UserError("qrels: none is left; name the splits of queries and qrels alike, and give known passages")
    for split in qrels["split"].unique().to_pylist():
        grades = qrels.filter(pc.equal(qrels["split"], split))["relevance"]
        if pc.max(grades).as_py() <= 0:
            error = f"qrels: none of the {len(grades):,} judgements of split {split} is above 0"
            raise UserError(f"{error}; a split needs a relevant passage")


def count_negative_grades(qrels: pa.Table, literal_matches: bool, warnings: Warnings) -> None:
    """Warn of grades below 0; `EXCLUDED` is none, and with `literal_matches` neither is `LITERAL_MATCH`."""
    below, literal = pc.less(qrels["relevance"], 0), pc.equal(qrels["relevance"], LITERAL_MATCH)
    below = pc.and_not(below, pc.equal(qrels["relevance"], EXCLUDED))
    warnings.count(pc.sum(pc.and_not(below, literal)).as_py() or 0, "judgements are below 0 and count as not relevant")
    if not literal_matches:
        done = f"judgements are {LITERAL_MATCH}: their passages are neither relevant nor ever taken as negatives"
        warnings.count(pc.sum(literal).as_py() or 0, done)


def _without_repeats(table: pa.Table, warnings: Warnings, source: Source) -> pa.Table:
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
            raise UserError(
                f"{source.judged_at(query, doc)}: query {query} judges document {doc} {both}; one is allowed"
            )
        first[other] = False
    warnings.count(int((~first).sum()), "judgements repeat an earlier one and were dropped")
    return table if first.all() else table.filter(pa.array(first))


def near_duplicates(corpus: Path, docs: set[str], threshold: float) -> dict[str, list[str]]:
    """Passages of a corpus.parquet whose similarity to one of some documents reaches a threshold.

    Exact. A set that is similar enough shares one of the document's rarest trigrams (prefix filtering, Bayardo et al.
    2007): only these are looked up, so that phrases which stand everywhere cost nothing. Memory: 8 bytes a trigram of
    `docs`; the corpus is read twice, a batch at a time.

    Args:
        threshold: above 0, at most 1.
    Returns:
        Document → its near-duplicates, in the order of the corpus; those without are left out.
    """
    names, sets = [], []
    for doc, title, text in tables.stream(corpus, "doc_id", "title", "text"):
        if doc in docs:
            names.append(doc)
            sets.append(trigrams(contents(title, text)))
    grams, owners = _rarest(sets, threshold)
    found: dict[str, list[str]] = {}
    for doc, title, text in tables.stream(corpus, "doc_id", "title", "text"):
        own = trigrams(contents(title, text))
        left, right = (np.searchsorted(grams, own, side) for side in ("left", "right"))
        near = {int(owner) for at in np.flatnonzero(right > left) for owner in owners[left[at] : right[at]]}
        for owner in sorted(near):
            if names[owner] != doc and similarity(sets[owner], own) >= threshold:
                found.setdefault(names[owner], []).append(doc)
    return found


def _rarest(sets: list[Grams], threshold: float) -> tuple[Grams, NDArray[np.int64]]:
    """The trigrams of each set by which every similar set is found, ascending, and whose they are."""
    if not sets:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    values, counts = np.unique(np.concatenate(sets), return_counts=True)
    chosen = []
    for each in sets:
        prefix = len(each) - int(np.ceil(threshold * len(each) - 1e-9)) + 1
        order = np.argsort(counts[np.searchsorted(values, each)], kind="stable")
        chosen.append(each[order[:prefix]])
    grams, owners = np.concatenate(chosen), np.repeat(np.arange(len(sets)), [len(each) for each in chosen])
    order = np.argsort(grams, kind="stable")
    return grams[order], owners[order]


def judged_too(judged: pa.Table, corpus: Path, threshold: float) -> tuple[pa.Table, int]:
    """Judgements, with those of relevant passages given to their unjudged near-duplicates; and how many were added.

    A passage near to several relevant ones of a query gets the highest of their grades.

    Args:
        judged: columns of `tables.QRELS_SCHEMA`.
        threshold: similarity from which two passages are near-duplicates.
    """
    relevant = [row for row in tables.rows(judged) if row[2] > 0]
    near = near_duplicates(corpus, {doc for _, doc, _, _ in relevant}, threshold)
    known = {(query, doc, split) for query, doc, _, split in tables.rows(judged)}
    added: dict[tuple[str, str, str], int] = {}
    for query, doc, grade, split in relevant:
        for other in near.get(doc, []):
            if (pair := (query, other, split)) not in known:
                added[pair] = max(grade, added.get(pair, grade))
    rows = [(query, doc, grade, split) for (query, doc, split), grade in added.items()]
    more = tables.gather(rows, tables.QRELS_SCHEMA)
    return pa.concat_tables([judged, more]), len(rows)
