"""Compare systems with one another: wins and losses of every pair, and single queries with their passages."""

import hashlib
from collections.abc import Sequence
from itertools import chain, islice

import altair
from markupsafe import Markup

from tandem.data.collection import Collection
from tandem.data.runs import iter_ranking
from tandem.evaluation.layouts import System, name_system
from tandem.evaluation.measure_names import parse_measures
from tandem.evaluation.measures import Qrels, skip_excluded
from tandem.evaluation.scores import list_shared_measures, read_aligned, read_relevance
from tandem.extras.report.charts import (
    CHART_SIZE,
    Specification,
    draw_figure,
    embed_data,
    make_specification,
)
from tandem.extras.report.page import cut_text
from tandem.report.grids import PageTable
from tandem.stages.evaluation import ScoreParams
from tandem.store.artifact import Artifact
from tandem.store.lineage import input_of, open_upstream

PageData = dict[str, object]  # a part of the page's data
_DIGITS = 4  # of a query's value
_QUERIES = 300  # queries that are shown with their passages
_DEPTH = 10  # passages of each system that a query shows
RELEVANT = 8  # relevant passages that a query shows in addition
MOST_CHARACTERS = 600  # of a text
BUDGET = 9_000_000  # bytes of the texts of queries and passages: the page stays under 20 MB
MOST_MEASURES = 6
NUMBERS = 600_000  # values in the list of all queries
_WORDS = 160  # characters of a query in the list of all queries


def compare_systems(systems: dict[System, Artifact]) -> tuple[PageTable, Markup | None]:
    """Compare score artifacts of one dataset and split on all queries, by the first measure that all have.

    Returns:
        The number of queries on which each system is better than each other one, and a plot of the differences between
        the last system and the first; None for a single system.
    """
    artifacts = list(systems.values())
    names = [name_system(system) for system in systems]
    measure = list_shared_measures(artifacts)[0]
    _, values = read_aligned(artifacts, [measure])
    # rounded as in the page's list of queries: a difference in the last bits is not a win
    rounded = values[:, :, 0].round(_DIGITS)
    wins = (rounded[:, None] > rounded[None]).sum(axis=2).tolist()
    rows = []
    for number, name in enumerate(names):
        counts = [f"{count:,}" for count in wins[number]]
        counts[number] = "–"
        rows.append([name, *counts])
    title = f"On how many of {rounded.shape[1]:,} queries the row's system has a higher {measure} than the column's"
    grid = PageTable(title, ["better", *(f"than {name}" for name in names)], rows)
    if len(names) == 1:
        return grid, None
    differences = (rounded[-1] - rounded[0]).tolist()
    return grid, draw_differences(names[-1], names[0], measure, differences)


def draw_differences(a: str, b: str, measure: str, values: list[float]) -> Markup:
    """Return a plot of the differences A − B of all queries, falling; `compare.js` shows other pairs in it."""
    summary = f"{a} is better on {sum(v > 0 for v in values)} queries, {b} on {sum(v < 0 for v in values)}"
    chart = altair.Chart(embed_data([{"difference": round(value, _DIGITS)} for value in values]))
    chart = chart.transform_window(
        rank="row_number()", sort=[altair.SortField("difference", order="descending")]
    )
    chart = chart.transform_calculate(before="datum.rank - 1").transform_filter(
        "datum.difference !== 0"
    )
    won = altair.value("var(--good)")
    lost = altair.value("var(--bad)")
    chart = chart.mark_rect(opacity=0.75, cursor="pointer").encode(
        x=altair.X(
            "before:Q", title="queries, by difference", scale=altair.Scale(nice=False, domainMin=0)
        ),
        x2="rank",
        y=altair.Y("difference:Q", title=f"{measure}, A − B"),
        y2=altair.datum(0),
        color=altair.when("datum.difference > 0").then(won).otherwise(lost),
        tooltip=["query:N", "difference:Q"],
    )
    numbers = [
        [str(at), f"{value:+.4f}"] for at, value in enumerate(sorted(values, reverse=True), start=1)
    ]
    title = f"{a} (A) against {b} (B): A is better above 0, B below"
    return draw_figure(title, chart.properties(**CHART_SIZE), summary, ["query", "A − B"], numbers)


def draw_movement(depth: int) -> Specification:
    """Return a plot that joins a passage's ranks in systems A and B; `compare.js` fills in those of the selected query.

    A passage that a system does not return is shown at twice `depth`, the lowest rank of all.
    """
    round_ranks = [digit * 10**zeros for zeros in range(6) for digit in (1, 2, 5)]
    ticks = [rank for rank in round_ranks if rank <= depth]
    ticks.append(2 * depth)
    label = f"datum.value > {depth} ? 'none' : datum.value"
    axis = altair.Axis(values=ticks, tickCount=len(ticks), labelExpr=label, labelOverlap=False)
    scale = altair.Scale(type="log", domain=[1, 2 * depth], reverse=True, nice=False)
    chart = altair.Chart(embed_data([])).transform_fold(["A", "B"], as_=["system", "rank"])
    chart = chart.mark_line(point={"size": 60}, strokeWidth=2).encode(
        x=altair.X(
            "system:N", title=None, scale=altair.Scale(padding=0.15), axis=altair.Axis(labelAngle=0)
        ),
        y=altair.Y("rank:Q", title="rank", scale=scale, axis=axis),
        color=altair.Color("colour:N", scale=None),
        opacity=altair.Opacity("opacity:Q", scale=None),
        detail="text:N",
        tooltip=altair.Tooltip("text:N", title="rank"),
    )
    return make_specification(chart.properties(**CHART_SIZE))


def select_queries(queries: list[str], count: int = _QUERIES) -> list[str]:
    """Return `count` queries, in their order, chosen only by their ids: those with the lowest sha256."""
    lowest = set(sorted(queries, key=lambda query: hashlib.sha256(query.encode()).digest())[:count])
    return [query for query in queries if query in lowest]


def collect_page_data(systems: dict[System, Artifact]) -> PageData:
    """Return the data of the comparison of score artifacts of one dataset and split, as JSON.

    It has systems (names), measures, total (number of queries scored), queries, passages (id, title, shortened text),
    and the plot `movement`, in which `none` is the rank of passages without one. A query has id, text, and values per
    system and measure. The first `shown` queries also have: the full text; per system, the passages ranked first;
    relevant passages, as positions in `passages`; per system, the ranks of these, null without one; and the number of
    relevant passages.
    """
    artifacts = list(systems.values())
    measures = list_shared_measures(artifacts)[:MOST_MEASURES]
    scored, values = read_aligned(artifacts, measures)
    lines = dict(zip(scored, values.transpose(1, 0, 2).round(_DIGITS).tolist(), strict=True))
    chosen = select_queries(scored)
    collection = Collection(input_of(artifacts[0], "dataset"))
    params = artifacts[0].params_as(ScoreParams)
    texts = collection.queries(params.split)
    qrels = find_qrels(artifacts)
    relevant: Qrels = {}
    for query in chosen:
        relevant[query] = {doc: grade for doc, grade in qrels.get(query, {}).items() if grade > 0}

    runs = []  # per system, the ranks by query and document
    tops = []  # per system, the first documents by query
    for artifact in artifacts:
        run = input_of(artifact, "run")
        dataset = input_of(artifact, "dataset")
        ranks = find_ranks(run, dataset, qrels, relevant, params.ignore_identical_ids)
        runs.append(ranks)
        tops.append(
            {
                query: [doc for doc, rank in ranks[query].items() if rank <= _DEPTH]
                for query in ranks
            }
        )

    docs: dict[str, dict[str, None]] = {}  # by query, in the order in which they are listed
    for query in chosen:
        docs[query] = dict.fromkeys(chain.from_iterable(top.get(query, ()) for top in tops))
        docs[query] |= dict.fromkeys(islice(relevant[query], RELEVANT))
    passage_texts = collection.texts(set().union(*docs.values()))
    passages: list[tuple[str, ...]] = []
    positions: dict[str, int] = {}  # position of each document in `passages`
    queries: list[PageData] = []
    spent = 0
    for query in chosen:
        new = []
        for doc in docs[query]:
            if doc not in positions:
                title, text = passage_texts.get(doc, ("", ""))
                new.append((doc, cut_text(title, MOST_CHARACTERS), cut_text(text, MOST_CHARACTERS)))
        spent += len(texts[query].encode()) + sum(len("".join(passage).encode()) for passage in new)
        if spent > BUDGET:
            break
        positions |= {doc: number for number, (doc, _, _) in enumerate(new, start=len(passages))}
        passages += new
        listed = [doc for doc in docs[query] if doc in relevant[query]]
        queries.append(
            {
                "id": query,
                "text": cut_text(texts[query], MOST_CHARACTERS),
                "values": lines[query],
                "top": [[positions[doc] for doc in top.get(query, [])] for top in tops],
                "relevant": [positions[doc] for doc in listed],
                "ranks": [[run.get(query, {}).get(doc) for doc in listed] for run in runs],
                "positives": len(relevant[query]),
            }
        )
    shown = len(queries)
    most = max(0, NUMBERS // (len(artifacts) * len(measures)) - shown)
    with_passages = set(chosen[:shown])
    others = select_queries([query for query in scored if query not in with_passages], most)
    queries += [
        {"id": query, "text": cut_text(texts[query], _WORDS), "values": lines[query]}
        for query in others
    ]

    deepest_of_lists = [
        max(of_query.values(), default=0) for ranks in runs for of_query in ranks.values()
    ]
    deepest = max(deepest_of_lists, default=0) or _DEPTH
    return {
        "systems": [name_system(system) for system in systems],
        "measures": measures,
        "total": len(scored),
        "shown": shown,
        "none": 2 * deepest,
        "queries": queries,
        "passages": passages,
        "movement": draw_movement(deepest),
    }


def find_qrels(artifacts: Sequence[Artifact]) -> Qrels:
    """Return the source of relevance: qrels, labels, or the passages with an answer that a system retrieved."""
    merged: Qrels = {}
    for artifact in artifacts:
        params = artifact.params_as(ScoreParams)
        inputs = open_upstream(artifact)
        measures = parse_measures(params.measures)
        judged = read_relevance(inputs, params.split, measures, params.ignore_identical_ids)
        for query, grades in judged.qrels.items():
            merged.setdefault(query, {}).update(grades)
    return merged


def find_ranks(
    run: Artifact,
    dataset: Artifact,
    qrels: Qrels,
    relevant: Qrels,
    ignore_identical_ids: bool = False,
) -> dict[str, dict[str, int]]:
    """Return, per query in `relevant`, the ranks of its first `_DEPTH` and its relevant passages, as scored."""
    ranks: dict[str, dict[str, int]] = {}
    for query, docs, _ in skip_excluded(iter_ranking(run, dataset), qrels, ignore_identical_ids):
        if query not in relevant:
            continue
        ranks[query] = {}
        for rank, doc in enumerate(docs, start=1):
            if rank <= _DEPTH or doc in relevant[query]:
                ranks[query][doc] = rank
    return ranks
