"""Systems against one another: wins and losses of every pair, and single queries with their passages."""

import hashlib
from collections.abc import Sequence
from itertools import chain, islice

import altair
from markupsafe import Markup

from tandem.data.collection import Collection
from tandem.data.runs import iter_ranking
from tandem.evaluation.layouts import System, system_name
from tandem.evaluation.measures import Qrels, parse_measures, without_excluded
from tandem.evaluation.scores import read_aligned, relevance, shared_measures
from tandem.report.charts import CHART_SIZE, Specification, figure, inline, specification
from tandem.report.page import PageTable, clipped
from tandem.stages.evaluation import ScoreParams
from tandem.store.artifact import Artifact
from tandem.store.lineage import input_of, open_upstream

PageData = dict[str, object]  # a part of the page's data
_DIGITS = 4  # of a query's value
QUERIES, DEPTH, RELEVANT, CHARACTERS = 300, 10, 8, 600
BUDGET = 9_000_000  # bytes of texts with passages: the page stays under 20 MB
MOST_MEASURES = 6
NUMBERS, WORDS = 600_000, 160  # values and characters of a query's line in the list of all


def compare_systems(systems: dict[System, Artifact]) -> tuple[PageTable, Markup | None]:
    """Compare score artifacts of one dataset and split on all queries, by the first measure that all have.

    Returns:
        On how many queries each system is better than each other one, and a plot of the differences between the last
        system and the first; None for a single system.
    """
    artifacts, names = list(systems.values()), [system_name(system) for system in systems]
    measure = shared_measures(artifacts)[0]
    _, values = read_aligned(artifacts, [measure])
    rounded = values[:, :, 0].round(_DIGITS)  # as the page's list of queries has them: the last bits are no win
    wins = (rounded[:, None] > rounded[None]).sum(axis=2).tolist()
    rows = [
        [name, *("–" if at == other else f"{count:,}" for other, count in enumerate(counts))]
        for at, (name, counts) in enumerate(zip(names, wins, strict=True))
    ]
    title = f"On how many of {rounded.shape[1]:,} queries the row's system has a higher {measure} than the column's"
    grid = PageTable(title, ["better", *(f"than {name}" for name in names)], rows)
    return grid, draw_differences(names[-1], names[0], measure, (rounded[-1] - rounded[0]).tolist()) if names[
        1:
    ] else None


def draw_differences(a: str, b: str, measure: str, values: list[float]) -> Markup:
    """A plot of the differences A − B of all queries, falling; `compare.js` shows other pairs in it."""
    summary = f"{a} is better on {sum(v > 0 for v in values)} queries, {b} on {sum(v < 0 for v in values)}"
    chart = altair.Chart(inline([{"difference": round(value, _DIGITS)} for value in values]))
    chart = chart.transform_window(rank="row_number()", sort=[altair.SortField("difference", order="descending")])
    chart = chart.transform_calculate(before="datum.rank - 1").transform_filter("datum.difference !== 0")
    won, lost = altair.value("var(--good)"), altair.value("var(--bad)")
    chart = chart.mark_rect(opacity=0.75, cursor="pointer").encode(
        x=altair.X("before:Q", title="queries, by difference", scale=altair.Scale(nice=False, domainMin=0)),
        x2="rank",
        y=altair.Y("difference:Q", title=f"{measure}, A − B"),
        y2=altair.datum(0),
        color=altair.when("datum.difference > 0").then(won).otherwise(lost),
        tooltip=["query:N", "difference:Q"],
    )
    numbers = [[str(at), f"{value:+.4f}"] for at, value in enumerate(sorted(values, reverse=True), start=1)]
    title = f"{a} (A) against {b} (B): A is better above 0, B below"
    return figure(title, chart.properties(**CHART_SIZE), summary, ["query", "A − B"], numbers)


def movement(depth: int) -> Specification:
    """A plot that joins a passage's ranks in systems A and B; `compare.js` fills in those of the selected query.

    A passage that a system does not return stands at twice `depth`, the lowest rank of all.
    """
    ticks = [digit * 10**zeros for zeros in range(6) for digit in (1, 2, 5) if digit * 10**zeros <= depth] + [2 * depth]
    label = f"datum.value > {depth} ? 'none' : datum.value"
    axis = altair.Axis(values=ticks, tickCount=len(ticks), labelExpr=label, labelOverlap=False)
    scale = altair.Scale(type="log", domain=[1, 2 * depth], reverse=True, nice=False)
    chart = altair.Chart(inline([])).transform_fold(["A", "B"], as_=["system", "rank"])
    chart = chart.mark_line(point={"size": 60}, strokeWidth=2).encode(
        x=altair.X("system:N", title=None, scale=altair.Scale(padding=0.15), axis=altair.Axis(labelAngle=0)),
        y=altair.Y("rank:Q", title="rank", scale=scale, axis=axis),
        color=altair.Color("colour:N", scale=None),
        opacity=altair.Opacity("opacity:Q", scale=None),
        detail="text:N",
        tooltip=altair.Tooltip("text:N", title="rank"),
    )
    return specification(chart.properties(**CHART_SIZE))


def select_queries(queries: list[str], count: int = QUERIES) -> list[str]:
    """`count` queries that depend on nothing but their ids: the lowest by sha256, in their order."""
    lowest = set(sorted(queries, key=lambda query: hashlib.sha256(query.encode()).digest())[:count])
    return [query for query in queries if query in lowest]


def explore(systems: dict[System, Artifact]) -> PageData:
    """The data of the comparison of score artifacts of one dataset and split, as JSON.

    Systems (names), measures, total (number of queries scored), queries, passages (id, title, shortened text), and the
    plot `movement`, with the rank `none` for no rank. A query has id, text and values per system and measure; the first
    `shown` also text in full, per system the passages ranked first, and relevant passages, as positions in `passages`,
    per system the ranks of these, null without one, and how many passages are relevant.
    """
    artifacts = list(systems.values())
    measures = shared_measures(artifacts)[:MOST_MEASURES]
    scored, values = read_aligned(artifacts, measures)
    lines = dict(zip(scored, values.transpose(1, 0, 2).round(_DIGITS).tolist(), strict=True))
    chosen = select_queries(scored)
    collection, params = Collection(input_of(artifacts[0], "dataset")), artifacts[0].params_as(ScoreParams)
    texts, qrels = collection.queries(params.split), judged_by(artifacts)
    relevant = {query: {doc: grade for doc, grade in qrels.get(query, {}).items() if grade > 0} for query in chosen}
    inputs = ((input_of(artifact, "run"), input_of(artifact, "dataset")) for artifact in artifacts)
    runs = [ranks_in(run, dataset, qrels, relevant, params.ignore_identical_ids) for run, dataset in inputs]
    tops = [{query: [doc for doc, rank in run[query].items() if rank <= DEPTH] for query in run} for run in runs]
    docs = {
        query: dict.fromkeys([*chain(*(top.get(query, ()) for top in tops)), *islice(relevant[query], RELEVANT)])
        for query in chosen
    }
    passage_texts = collection.texts(set().union(*docs.values()))
    passages: list[tuple[str, ...]] = []
    at: dict[str, int] = {}
    queries: list[PageData] = []
    spent = 0
    for query in chosen:
        fresh = [(doc, *passage_texts.get(doc, ("", ""))) for doc in docs[query] if doc not in at]
        new = [(doc, clipped(title, CHARACTERS), clipped(text, CHARACTERS)) for doc, title, text in fresh]
        spent += len(texts[query].encode()) + sum(len("".join(passage).encode()) for passage in new)
        if spent > BUDGET:
            break
        at |= {passage[0]: number for number, passage in enumerate(new, start=len(passages))}
        passages += new
        listed = [doc for doc in docs[query] if doc in relevant[query]]
        queries.append(
            {
                "id": query,
                "text": clipped(texts[query], CHARACTERS),
                "values": lines[query],
                "top": [[at[doc] for doc in top.get(query, [])] for top in tops],
                "relevant": [at[doc] for doc in listed],
                "ranks": [[run.get(query, {}).get(doc) for doc in listed] for run in runs],
                "positives": len(relevant[query]),
            }
        )
    shown = len(queries)
    most = max(0, NUMBERS // (len(artifacts) * len(measures)) - shown)
    with_passages = set(chosen[:shown])
    others = select_queries([query for query in scored if query not in with_passages], most)
    queries += [{"id": query, "text": clipped(texts[query], WORDS), "values": lines[query]} for query in others]
    named: PageData = {"systems": [system_name(system) for system in systems], "measures": measures}
    deepest = max((rank for run in runs for ranks in run.values() for rank in ranks.values()), default=DEPTH)
    counts: PageData = {"total": len(scored), "shown": shown, "none": 2 * deepest}
    return {**named, **counts, "queries": queries, "passages": passages, "movement": movement(deepest)}


def judged_by(artifacts: Sequence[Artifact]) -> Qrels:
    """The source of relevance: qrels, labels, or the passages with an answer that one of the systems found."""
    merged: Qrels = {}
    for artifact in artifacts:
        params = artifact.params_as(ScoreParams)
        judged = relevance(
            open_upstream(artifact), params.split, parse_measures(params.measures), params.ignore_identical_ids
        )
        for query, grades in judged.qrels.items():
            merged.setdefault(query, {}).update(grades)
    return merged


def ranks_in(
    run: Artifact, dataset: Artifact, qrels: Qrels, relevant: Qrels, ignore_identical_ids: bool = False
) -> dict[str, dict[str, int]]:
    """For each query in `relevant`, the ranks of its first `DEPTH` and its relevant passages, as they are scored."""
    return {
        query: {doc: rank for rank, doc in enumerate(docs, start=1) if rank <= DEPTH or doc in relevant[query]}
        for query, docs, _ in without_excluded(iter_ranking(run, dataset), qrels, ignore_identical_ids)
        if query in relevant
    }
