"""Systems against one another: wins and losses of every pair, and single queries with their passages."""

import hashlib
from dataclasses import dataclass

import altair
import numpy as np
from markupsafe import Markup

from tandem.data.collection import Collection
from tandem.data.runs import iter_run
from tandem.evaluation.layouts import System, system_name
from tandem.evaluation.scores import read_aligned, shared_measures
from tandem.report.charts import HEIGHT, figure, inline
from tandem.stages.evaluation import ScoreParams
from tandem.store.artifact import Artifact
from tandem.store.lineage import input_of

Json = dict[str, object]  # a part of the page's data
DIGITS = 4  # of a query's value
QUERIES, DEPTH, RELEVANT, CHARACTERS = 300, 10, 8, 600
BUDGET = 9_000_000  # bytes of texts with passages: the page stays under 20 MB
MEASURES = 4
NUMBERS, WORDS = 600_000, 160  # values and characters of a query's line in the list of all


@dataclass(frozen=True)
class Comparison:
    """Every pair of systems by the first measure that all have.

    `wins` tells per system and other system on how many queries it is better; `chart` shows the differences between the
    second system and the first, None for a single system.
    """

    measure: str
    systems: list[str]
    wins: list[list[int]]
    queries: int
    chart: Markup | None


def compare(systems: dict[System, Artifact]) -> Comparison:
    """Compare score artifacts of one dataset and split on all queries."""
    artifacts, names = list(systems.values()), [system_name(system) for system in systems]
    measure = shared_measures(artifacts)[0]
    _, values = read_aligned(artifacts, [measure])
    rounded = values[:, :, 0].round(DIGITS)  # as the page's list of queries has them: the last bits are no win
    wins = [[int((a > b).sum()) for b in rounded] for a in rounded]
    chart = differences(names[1], names[0], measure, (rounded[1] - rounded[0]).tolist()) if len(names) > 1 else None
    return Comparison(measure, names, wins, rounded.shape[1], chart)


def difference_steps(values: list[float]) -> list[dict[str, float]]:
    """Differences in falling order as steps: how many queries stand before, what A wins, what it loses.

    The last one ends its step by standing there again. `compare.js` does the same for other pairs.
    """
    falling = np.round(np.sort(values)[::-1], DIGITS).tolist()
    return [
        {"before": at, "won": max(value, 0), "lost": min(value, 0)} for at, value in enumerate([*falling, falling[-1]])
    ]


def differences(a: str, b: str, measure: str, values: list[float]) -> Markup:
    """Differences A − B of all queries in falling order, as a plot."""
    summary = f"{a} is better on {sum(v > 0 for v in values)} queries, {b} on {sum(v < 0 for v in values)}"
    steps = difference_steps(values)
    base = altair.Chart(inline(steps)).encode(
        x=altair.X("before:Q", title="queries, by difference", scale=altair.Scale(nice=False)),
        tooltip=[altair.Tooltip("won:Q", title="A better by"), altair.Tooltip("lost:Q", title="B better by")],
    )
    area = {"interpolate": "step-after", "opacity": 0.75}
    won = base.mark_area(color="var(--good)", **area).encode(y=altair.Y("won:Q", title=f"{measure}, A − B"))
    lost = base.mark_area(color="var(--bad)", **area).encode(y=altair.Y("lost:Q", title=f"{measure}, A − B"))
    numbers = [[str(int(step["before"]) + 1), f"{step['won'] + step['lost']:+.4f}"] for step in steps[:-1]]
    chart = altair.layer(won, lost).properties(width=820, height=HEIGHT - 30)
    return figure(f"{a} (A) against {b} (B): A is better above 0, B below", chart, summary, ["query", "A − B"], numbers)


@dataclass(frozen=True)
class ShownQuery:
    """A query: the passages that each system ranks first, and those that are relevant."""

    query: str
    text: str
    values: list[list[float]]
    top: list[list[str]]
    relevant: list[str]

    def passages(self) -> list[str]:
        """Every passage it shows, each once."""
        return list(dict.fromkeys([doc for docs in self.top for doc in docs] + self.relevant[:RELEVANT]))


def select_queries(queries: list[str], count: int = QUERIES) -> list[str]:
    """`count` queries that depend on nothing but their ids: the lowest by sha256, in their order."""
    lowest = set(sorted(queries, key=lambda query: hashlib.sha256(query.encode()).digest())[:count])
    return [query for query in queries if query in lowest]


def explore(systems: dict[System, Artifact]) -> Json:
    """The data of the comparison of score artifacts of one dataset and split, as JSON.

    Systems (names), measures, total (number of queries scored), queries and passages (id, title, shortened text). A
    query has id, text and values per system and measure; the first `shown` also text in full, per system the passages
    ranked first, and relevant passages, as positions in `passages`, and their number.
    """
    artifacts = list(systems.values())
    measures = shared_measures(artifacts)[:MEASURES]
    scored, values = read_aligned(artifacts, measures)
    rows = {query: row for row, query in enumerate(scored)}
    queries = select_queries(scored)
    some = set(queries)
    runs = (iter_run(input_of(artifact, "run").path("run.trec")) for artifact in artifacts)
    tops = [{query: docs[:DEPTH] for query, docs, _ in run if query in some} for run in runs]
    collection, split = Collection(input_of(artifacts[0], "dataset")), artifacts[0].params_as(ScoreParams).split
    texts, qrels = collection.queries(split), collection.qrels(split)
    shown = [
        ShownQuery(
            query,
            texts[query],
            values[:, rows[query]].round(DIGITS).tolist(),
            [top.get(query, []) for top in tops],
            [doc for doc, relevance in qrels[query].items() if relevance > 0],
        )
        for query in queries
    ]
    packed, passages = _pack(shown, collection)
    with_passages = {query["id"] for query in packed}
    most = max(0, NUMBERS // (len(artifacts) * len(measures)) - len(packed))
    others: list[Json] = [
        {"id": query, "text": shortened(texts[query], WORDS), "values": values[:, rows[query]].round(DIGITS).tolist()}
        for query in select_queries([query for query in scored if query not in with_passages], most)
    ]
    return {
        "systems": [system_name(system) for system in systems],
        "measures": measures,
        "total": len(scored),
        "shown": len(packed),
        "queries": [*packed, *others],
        "passages": passages,
    }


def _pack(shown: list[ShownQuery], collection: Collection) -> tuple[list[Json], list[tuple[str, ...]]]:
    """Queries and the passages they show, as many queries as the budget of bytes allows."""
    texts = collection.texts({doc for query in shown for doc in query.passages()})
    passages: list[tuple[str, ...]] = []
    at: dict[str, int] = {}
    queries: list[Json] = []
    spent = 0
    for query in shown:
        new = [(doc, *map(shortened, texts.get(doc, ("", "")))) for doc in query.passages() if doc not in at]
        spent += len(query.text.encode()) + sum(len("".join(passage).encode()) for passage in new)
        if spent > BUDGET:
            break
        for passage in new:
            at[passage[0]] = len(passages)
            passages.append(passage)
        relevant = set(query.relevant)
        queries.append(
            {
                "id": query.query,
                "text": shortened(query.text),
                "values": query.values,
                "top": [[at[doc] for doc in docs] for docs in query.top],
                "relevant": [at[doc] for doc in query.passages() if doc in relevant],
                "positives": len(relevant),
            }
        )
    return queries, passages


def shortened(text: str, most: int | None = None) -> str:
    """At most so many characters, CHARACTERS by default."""
    limit = CHARACTERS if most is None else most
    return text if len(text) <= limit else f"{text[:limit].rstrip()}…"
