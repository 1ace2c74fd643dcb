"""A few examples of each finding of the stage `noise`, with the texts of the queries and passages concerned."""

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import numpy as np

from tandem.data.collection import Collection, contents
from tandem.data.rows import IdRows
from tandem.extras.audits.duplicates import EXACT, Duplicates, unpack
from tandem.extras.audits.labels import Holes, Overlap, Split

MOST = 5  # examples of a finding, and passages of an example
CHARACTERS = 200  # of an example's text


class Example(NamedTuple):
    """Queries (id and text) and passages (ids) that show a finding, and a remark."""

    note: str
    queries: list[tuple[str, str]]
    passages: list[str]


Examples = dict[str, list[Example]]


def corpus_examples(duplicates: Duplicates, ids: IdRows) -> Examples:
    """Empty passages, equal texts, and near-duplicates: the least alike first, as they are the ones to doubt."""
    first = duplicates.first
    groups = [np.flatnonzero(first == row) for row in np.unique(first[duplicates.copies])[:MOST].tolist()]
    some = np.argsort(duplicates.similarity, kind="stable")[:MOST]
    pairs = zip(duplicates.similarity[some].tolist(), *map(ids.ids, unpack(duplicates.pairs[some])), strict=True)
    return {
        "Empty passages": [Example("", [], [doc]) for doc in ids.ids(np.flatnonzero(duplicates.empty)[:MOST])],
        "Passages with the same text": [
            Example(f"{len(members)} passages", [], ids.ids(members[:MOST])) for members in groups
        ],
        "Near-duplicates, the least alike": [Example(f"similarity {s:.2f}", [], [a, b]) for s, a, b in pairs],
    }


def split_examples(splits: dict[str, Split]) -> Examples:
    """Per split: positives that the corpus lacks, judged queries without a positive, queries asked twice."""
    examples: Examples = {}
    for name, split in splits.items():
        text = split.queries
        examples[f"Positives that the corpus lacks, {name}"] = [
            Example(f"the corpus lacks {', '.join(docs[:MOST])}", [(query, text[query])], [])
            for query, docs in islice(split.missing().items(), MOST)
        ]
        examples[f"Judged queries without a positive, {name}"] = [
            Example(f"{len(split.judged[query])} judgements", [(query, text[query])], [])
            for query in split.without_positive()[:MOST]
        ]
        examples[f"Queries asked more than once, {name}"] = [
            Example(f"{len(group)} queries", [(query, text[query]) for query in group[:MOST]], [])
            for group in split.repeated()[:MOST]
        ]
    return examples


def repeated_examples(first: Split, second: Split, repeated: list[tuple[str, str]]) -> list[Example]:
    """Queries that two splits ask: (query of the second split, query of the first)."""
    return [
        Example("the same text", [(query, second.queries[query]), (before, first.queries[before])], [])
        for query, before in repeated[:MOST]
    ]


def overlap_examples(name: str, part: Overlap, ids: IdRows) -> list[Example]:
    """Positives of a split that training has shown: shared ones, then equal texts, then near-duplicates."""
    examples = [Example(f"a positive of train and of {name}", [], [doc]) for doc in ids.ids(part.shared[:MOST])]
    for what, pairs in (("the same text", part.exact), ("near-duplicates", part.near)):
        examples += [
            Example(f"{what}: a positive of {name}, one of train", [], ids.ids(np.asarray(pair, np.int64)))
            for pair in pairs[:MOST]
        ]
    return examples


def hole_examples(part: Holes, split: Split, ids: IdRows) -> list[Example]:
    """Unjudged results and the positives they repeat."""
    examples = []
    for hint in part.examples:
        likeness = "the same text" if hint.likeness == EXACT else f"similarity {hint.likeness:.2f}"
        passages = [hint.doc, *ids.ids(np.asarray([hint.positive]))]
        note = f"unjudged at rank {hint.rank}; a positive, {likeness}"
        examples.append(Example(note, [(hint.query, split.queries[hint.query])], passages))
    return examples


def with_texts(examples: Examples, collection: Collection) -> dict[str, list[dict[str, object]]]:
    """The examples of each finding that has any, as JSON, texts cut to `CHARACTERS`; one pass over the corpus."""
    texts = collection.texts(doc for some in examples.values() for example in some for doc in example.passages)

    def listed(rows: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
        return [{"id": name, "text": shortened(text)} for name, text in rows]

    return {
        finding: [
            {"note": note, "queries": listed(queries), "passages": listed((d, contents(*texts[d])) for d in passages)}
            for note, queries, passages in some
        ]
        for finding, some in examples.items()
        if some
    }


def shortened(text: str) -> str:
    """The first `CHARACTERS` characters, with a mark where text is left out."""
    return text if len(text) <= CHARACTERS else f"{text[:CHARACTERS]}…"
