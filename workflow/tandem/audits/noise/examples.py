"""A few examples of each finding, with texts to read: what was found, and the queries and passages concerned."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from tandem.audits.noise.buckets import unpack
from tandem.audits.noise.duplicates import Duplicates
from tandem.audits.noise.holes import EXACT, Hint
from tandem.audits.noise.labels import Split
from tandem.audits.noise.overlap import Overlap
from tandem.data.collection import Collection, contents
from tandem.data.rows import IdRows

MOST = 5  # examples of a finding, and passages of an example
CHARACTERS = 200


@dataclass(frozen=True)
class Example:
    """Queries (id and text) and passages (ids) that show a finding, and a remark."""

    note: str
    queries: list[tuple[str, str]] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)


Examples = dict[str, list[Example]]


def of_corpus(duplicates: Duplicates, ids: IdRows) -> Examples:
    """Empty passages, equal texts, and near-duplicates: the least alike first, as they are the ones to doubt."""
    first = duplicates.first
    exact = []
    for one in np.unique(first[duplicates.copies])[:MOST].tolist():
        members = np.flatnonzero(first == one)
        exact.append(Example(f"{len(members)} passages", passages=ids.ids(members[:MOST])))
    some = np.argsort(duplicates.similarity, kind="stable")[:MOST]
    pairs = zip(duplicates.similarity[some].tolist(), *map(ids.ids, unpack(duplicates.pairs[some])), strict=True)
    return {
        "Empty passages": [Example("", passages=[doc]) for doc in ids.ids(np.flatnonzero(duplicates.empty)[:MOST])],
        "Passages with the same text": exact,
        "Near-duplicates, the least alike": [Example(f"similarity {s:.2f}", passages=[a, b]) for s, a, b in pairs],
    }


def of_splits(splits: dict[str, Split]) -> Examples:
    """Per split: positives that the corpus lacks, judged queries without a positive, queries asked twice."""
    made: Examples = {}
    for name, split in splits.items():
        text = split.queries
        missing = islice(split.missing().items(), MOST)
        made[f"Positives that the corpus lacks, {name}"] = [
            Example(f"the corpus lacks {', '.join(docs[:MOST])}", [(query, text[query])]) for query, docs in missing
        ]
        made[f"Judged queries without a positive, {name}"] = [
            Example(f"{len(split.judged[query])} judgements", [(query, text[query])])
            for query in split.without_positive()[:MOST]
        ]
        made[f"Queries asked more than once, {name}"] = [
            Example(f"{len(group)} queries", [(query, text[query]) for query in group[:MOST]])
            for group in split.repeated()[:MOST]
        ]
    return made


def of_repeated(one: Split, other: Split, found: Iterable[tuple[str, str]]) -> list[Example]:
    """Queries that another split asks too: (query of the other split, query of this one)."""
    return [
        Example("the same text", [(query, other.queries[query]), (before, one.queries[before])])
        for query, before in islice(found, MOST)
    ]


def of_overlap(name: str, found: Overlap, ids: IdRows) -> list[Example]:
    """Positives of a split that training has shown: shared ones, then equal texts, then near-duplicates."""
    made = [Example(f"a positive of train and of {name}", passages=[doc]) for doc in ids.ids(found.shared[:MOST])]
    for what, pairs in (("the same text", found.exact), ("near-duplicates", found.near)):
        made += [
            Example(f"{what}: a positive of {name}, one of train", passages=ids.ids(np.asarray(pair, np.int64)))
            for pair in pairs[:MOST]
        ]
    return made


def of_run(hints: Iterable[Hint], split: Split, ids: IdRows) -> list[Example]:
    """Unjudged results and the positives they repeat."""
    return [
        Example(
            f"unjudged at rank {hint.rank}; a positive, "
            + ("the same text" if hint.likeness == EXACT else f"similarity {hint.likeness:.2f}"),
            [(hint.query, split.queries[hint.query])],
            [hint.doc, *ids.ids(np.asarray([hint.positive]))],
        )
        for hint in hints
    ]


def with_texts(examples: Examples, collection: Collection) -> dict[str, list[dict[str, Any]]]:
    """The examples of each finding that has any, as JSON, texts cut to `CHARACTERS`; one pass over the corpus."""
    texts = collection.texts(doc for some in examples.values() for one in some for doc in one.passages)

    def listed(rows: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
        return [{"id": name, "text": shortened(text)} for name, text in rows]

    return {
        finding: [
            {
                "note": one.note,
                "queries": listed(one.queries),
                "passages": listed((doc, contents(*texts[doc])) for doc in one.passages),
            }
            for one in some
        ]
        for finding, some in examples.items()
        if some
    }


def shortened(text: str) -> str:
    """The first `CHARACTERS` characters, with a mark where text is left out."""
    return text if len(text) <= CHARACTERS else f"{text[:CHARACTERS]}…"
