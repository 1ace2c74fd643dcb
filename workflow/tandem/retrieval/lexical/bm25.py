"""What an engine of BM25 is to the stages that search."""

import csv
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, Protocol

import numpy as np

from tandem.artifact import Artifact, Job, writing
from tandem.data.collection import Collection
from tandem.data.runs import Floats, write_run
from tandem.errors import UserError
from tandem.progress import Progress, say
from tandem.retrieval.lexical import ENGINES
from tandem.scoring.measures import answerable, evaluate, parse_measures
from tandem.scoring.stage import others

Query = tuple[str, str]  # id and text
Hits = list[tuple[str, float]]  # (document id, score)
Ranked = tuple[str, list[str], list[float]]  # query id, document ids and scores, as `write_run` takes them


class Engine(Protocol):
    """An opened index, to be searched with any k1 and b.

    Attributes:
        facts: versions of what decides a result, for the manifest.
    """

    facts: dict[str, Any]

    def search(self, queries: list[Query], k1: float, b: float, depth: int, progress: Progress) -> Iterator[Ranked]:
        """The best `depth` passages of each query that finds something, in the queries' order.

        Of tied passages at the cut those with the lower document ids are kept.

        Args:
            queries: ids and texts.
            k1: how soon a term's frequency saturates, from 0.
            b: how much a passage's length counts, 0 to 1.
            depth: most passages of a query.
            progress: counts queries.
        """
        ...


CHOSEN = "chosen.json"  # of the stage `tune_bm25`
NEEDED = {"rm3": "vectors", "fields": "fields"}  # parameter of a search → of the index
RANGES = {"k1": (0, float("inf")), "b": (0, 1)}


def run(job: Job) -> None:
    """Search the input `lucene` or `bm25s` with the queries of the input `dataset`; writes run.trec.

    Parameters: `k1`, `b` (absent where the input `tuned` has chosen them), `depth`, `split`, `queries` (the first so
    many of the split, null for all). Of Lucene also `rm3` and `fields`, of bm25s `formula` and `delta`; absent means
    plain BM25. Execution: `workers` threads, `heap` of Java. A query that finds nothing has no line.
    """
    params = job.params
    index = require_index(job)
    k1, b = k1_and_b(job, index)
    check(params | {"k1": k1, "b": b})
    queries = list(Collection(job.inputs["dataset"]).queries(params["split"]).items())[: params.get("queries")]
    with open_engine(job) as engine, writing(job) as draft:
        with Progress(f"bm25 {job.key}", len(queries), "queries") as progress:
            found = engine.search(queries, k1, b, params["depth"], progress)
            lines = write_run(draft.path("run.trec"), found, job.key)
        draft.facts.update(queries=len(queries), lines=lines, **engine.facts)


@contextmanager
def open_engine(job: Job) -> Iterator[Engine]:
    """The engine of a job's index, closed at the end."""
    if "bm25s" in job.inputs:
        from tandem.retrieval.lexical.bm25s import Eager

        yield Eager(job)
        return
    from tandem.retrieval.lexical.lucene import Lucene

    engine = Lucene(job)
    try:
        yield engine
    finally:
        engine.close()


def check(params: dict[str, float | None]) -> None:
    """Refuse numbers out of range."""
    for name, (low, high) in RANGES.items():
        number = params[name]
        if number is None or not low <= number <= high:
            raise UserError(f"{name}: {number}; a number from {low} to {high} is allowed")
    for name in ("depth", "queries"):
        number = params.get(name)
        if number is not None and number < 1:
            raise UserError(f"{name}: {number}; a whole number from 1 is allowed")


def require_index(job: Job) -> Artifact:
    """The index that is searched; a `UserError` where it is of another dataset, or lacks what the search reads."""
    dataset, index = job.inputs["dataset"], next(job.inputs[role] for role in ENGINES if role in job.inputs)
    if os.path.basename(index.upstream["dataset"]) != dataset.key:
        raise UserError(f"{index.folder}: indexes {index.upstream['dataset']}, not {dataset.folder}; name its index")
    for asked, kept in NEEDED.items():
        if job.params.get(asked) and not index.params.get(kept):
            raise UserError(f"{index.folder}: was made without {kept}, which {asked} needs; name an index with {kept}")
    return index


def k1_and_b(job: Job, index: Artifact) -> tuple[float, float]:
    """k1 and b: told, or as the input `tuned` has chosen them on the same index."""
    if "tuned" not in job.inputs:
        return job.params["k1"], job.params["b"]
    tuned = job.inputs["tuned"]
    if index.key not in map(os.path.basename, tuned.upstream.values()):
        raise UserError(f"{tuned.folder}: was tuned on another index than {index.folder}; tune on this one")
    chosen = json.loads(tuned.path(CHOSEN).read_text(encoding="utf-8"))
    return chosen["k1"], chosen["b"]


GRID = "grid.csv"


def run_tuning(job: Job) -> None:
    """Search a split once for every k1 and b; writes grid.csv (k1, b, mean) and chosen.json (the best k1, b and mean).

    Parameters: `k1`, `b` (lists), `measure`, `split`, `queries` (the first so many, null for all), `depth`,
    `ignore_identical_ids` (absent: false), and how is searched as in the stage `bm25`. Inputs and execution are those
    of `bm25`: one process, one opened index. Of equal means the first in the grid's order is chosen, k1 before b.
    """
    params = job.params
    require_index(job)
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
    with open_engine(job) as engine, writing(job) as draft:
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
