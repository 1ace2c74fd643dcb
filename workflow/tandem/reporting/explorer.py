"""What the comparison of two systems shows: values of every query, and for some the top of every system's list."""

import hashlib
from dataclasses import dataclass
from typing import Any

from tandem.data.collection import Collection
from tandem.data.runs import iter_run
from tandem.reporting.compare import DIGITS
from tandem.reporting.layout import System, name
from tandem.scoring.scores import read_aligned
from tandem.store.artifact import Artifact
from tandem.store.lineage import input_of

QUERIES, DEPTH, RELEVANT, CHARACTERS = 300, 10, 8, 600
BUDGET = 9_000_000  # bytes of texts with passages: the page stays under 20 MB
MEASURES = 4
NUMBERS, WORDS = 600_000, 160  # values and characters of a query's line in the list of all


@dataclass(frozen=True)
class Shown:
    """One query: who ranks what at the top, and which passages are relevant."""

    query: str
    text: str
    values: list[list[float]]
    top: list[list[str]]
    relevant: list[str]

    def passages(self) -> list[str]:
        """Every passage it shows, each once."""
        return list(dict.fromkeys([doc for docs in self.top for doc in docs] + self.relevant[:RELEVANT]))


def chosen(queries: list[str], count: int = QUERIES) -> list[str]:
    """`count` queries that depend on nothing but their ids: the lowest by sha256, in the order given."""
    lowest = set(sorted(queries, key=lambda query: hashlib.sha256(query.encode()).digest())[:count])
    return [query for query in queries if query in lowest]


def explorer(systems: dict[System, Artifact]) -> dict[str, Any]:
    """The data of the comparison, ready for JSON.

    Args:
        systems: score artifacts of one dataset and split.
    Returns:
        systems (names), measures, total (number of queries scored), queries and passages (id, title, shortened text).
        A query has id, text and values per system and measure; the first `shown` of them also text in full, per system
        the passages ranked first, and relevant passages, as positions in `passages`, and their number.
    """
    artifacts = list(systems.values())
    measures = [m for m in artifacts[0].params["measures"] if all(m in a.params["measures"] for a in artifacts)]
    measures = measures[:MEASURES]
    scored, values = read_aligned(artifacts, measures)
    rows = {query: row for row, query in enumerate(scored)}
    queries = chosen(scored)
    tops = [_tops(input_of(artifact, "run"), set(queries)) for artifact in artifacts]
    collection, split = Collection(input_of(artifacts[0], "dataset")), artifacts[0].params["split"]
    texts, qrels = collection.queries(split), collection.qrels(split)
    found = [
        Shown(
            query,
            texts[query],
            values[:, rows[query]].round(DIGITS).tolist(),
            [top.get(query, []) for top in tops],
            [doc for doc, relevance in qrels[query].items() if relevance > 0],
        )
        for query in queries
    ]
    packed, passages = _pack(found, collection)
    with_passages = {query["id"] for query in packed}
    most = max(0, NUMBERS // (len(artifacts) * len(measures)) - len(packed))
    others = [
        {"id": query, "text": _shortened(texts[query], WORDS), "values": values[:, rows[query]].round(DIGITS).tolist()}
        for query in chosen([query for query in scored if query not in with_passages], most)
    ]
    return {
        "systems": [name(system) for system in systems],
        "measures": measures,
        "total": len(scored),
        "shown": len(packed),
        "queries": [*packed, *others],
        "passages": passages,
    }


def _tops(run: Artifact, queries: set[str]) -> dict[str, list[str]]:
    """The first passages of the chosen queries."""
    return {query: docs[:DEPTH] for query, docs, _ in iter_run(run.path("run.trec")) if query in queries}


def _pack(shown: list[Shown], collection: Collection) -> tuple[list[dict[str, Any]], list[tuple[str, ...]]]:
    """Queries and the passages they show, as many queries as the budget of bytes allows."""
    texts = collection.texts({doc for one in shown for doc in one.passages()})
    passages: list[tuple[str, ...]] = []
    at: dict[str, int] = {}
    queries, spent = [], 0
    for one in shown:
        new = [(doc, *map(_shortened, texts.get(doc, ("", "")))) for doc in one.passages() if doc not in at]
        spent += len(one.text.encode()) + sum(len("".join(passage).encode()) for passage in new)
        if spent > BUDGET:
            break
        for passage in new:
            at[passage[0]] = len(passages)
            passages.append(passage)
        relevant = set(one.relevant)
        queries.append(
            {
                "id": one.query,
                "text": _shortened(one.text),
                "values": one.values,
                "top": [[at[doc] for doc in docs] for docs in one.top],
                "relevant": [at[doc] for doc in one.passages() if doc in relevant],
                "positives": len(relevant),
            }
        )
    return queries, passages


def _shortened(text: str, most: int | None = None) -> str:
    """At most so many characters, CHARACTERS if nothing is said."""
    limit = CHARACTERS if most is None else most
    return text if len(text) <= limit else f"{text[:limit].rstrip()}…"
