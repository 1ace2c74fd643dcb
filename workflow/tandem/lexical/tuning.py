"""The stage `tune_bm25`: k1 and b chosen on a split with judgements, by a grid over both."""

import csv
import json
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from tandem.cluster.progress import Progress, say
from tandem.data.collection import Collection
from tandem.data.runs import Floats
from tandem.errors import UserError
from tandem.lexical.engine import Engine, Query
from tandem.lexical.search import CHOSEN, check, index_of, opened
from tandem.scoring.measures import answerable, evaluate, parse_measures
from tandem.scoring.stage import others
from tandem.store.job import Job, writing

GRID = "grid.csv"


def run(job: Job) -> None:
    """Search a split once for every k1 and b; writes grid.csv (k1, b, mean) and chosen.json (the best k1, b and mean).

    Parameters: `k1`, `b` (lists), `measure`, `split`, `queries` (the first so many, null for all), `depth`,
    `ignore_identical_ids` (absent: false), and how is searched as in the stage `bm25`. Inputs and execution are those
    of `bm25`: one process, one opened index. Of equal means the first in the grid's order is chosen, k1 before b.
    """
    params = job.params
    index_of(job)
    for k1, b in product(params["k1"], params["b"]):
        check({"k1": k1, "b": b, "depth": params["depth"], "queries": params["queries"]})
    [measure] = parse_measures([params["measure"]])
    collection = Collection(job.inputs["dataset"])
    qrels = collection.qrels(params["split"])
    judged, asked = set(answerable(qrels)), collection.queries(params["split"]).items()
    queries = [(query, text) for query, text in asked if query in judged][: params["queries"]]
    if not queries:
        raise UserError(f"{collection.artifact.folder}: split {params['split']} has no relevant judgement to tune on")
    grid: list[tuple[float, float, float]] = []
    steps = len(params["k1"]) * len(params["b"])
    with opened(job) as engine, writing(job) as draft:
        with Progress(f"tune_bm25 {job.key}", steps * len(queries), "queries") as progress:
            for k1, b in product(params["k1"], params["b"]):
                ranked = _ranked(job, engine, queries, k1, b, progress)
                told = evaluate([measure], qrels, ranked, [query for query, _ in queries])
                grid.append((k1, b, float(told.values.mean())))
        k1, b, value = max(grid, key=lambda point: point[2])
        with open(draft.path(GRID), "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("k1", "b", params["measure"]), *grid])
        chosen = {"k1": k1, "b": b, "measure": params["measure"], "mean": value}
        draft.path(CHOSEN).write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")
        say(f"tune_bm25 {job.key} · {params['measure']} {value:.4f} with k1 {k1:g}, b {b:g}")
        draft.facts.update(queries=len(queries), chosen=chosen, **engine.facts)


def _ranked(
    job: Job, engine: Engine, queries: list[Query], k1: float, b: float, progress: Progress
) -> Iterator[tuple[str, Sequence[str], Floats]]:
    """The run of one point of the grid, as the measures read it: without the query itself where that is the rule."""
    alone = bool(job.params.get("ignore_identical_ids"))
    found = engine.search(queries, k1, b, job.params["depth"] + alone, progress)
    ranked = ((query, docs, np.asarray(scores, np.float32)) for query, docs, scores in found)
    yield from others(ranked) if alone else ranked
