"""The stage `bm25`: a run of BM25, or of a variant of it, over one split's queries.

Two engines search: Lucene (`lucene.py`) over the input `lucene`, and bm25s (`eager.py`) over the input `bm25s`. Which
of tied passages make the cut at `depth`, and their order, is decided by document id in both.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.runs import write_run
from tandem.errors import UserError
from tandem.lexical import ENGINES
from tandem.lexical.engine import Engine
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

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
    index = index_of(job)
    k1, b = parameters(job, index)
    check(params | {"k1": k1, "b": b})
    queries = list(Collection(job.inputs["dataset"]).queries(params["split"]).items())[: params.get("queries")]
    with opened(job) as engine, writing(job) as draft:
        with Progress(f"bm25 {job.key}", len(queries), "queries") as progress:
            found = engine.search(queries, k1, b, params["depth"], progress)
            lines = write_run(draft.path("run.trec"), found, job.key)
        draft.facts.update(queries=len(queries), lines=lines, **engine.facts)


@contextmanager
def opened(job: Job) -> Iterator[Engine]:
    """The engine of a job's index, closed at the end."""
    if "bm25s" in job.inputs:
        from tandem.lexical.eager import Eager

        yield Eager(job)
        return
    from tandem.lexical.lucene import Lucene

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


def index_of(job: Job) -> Artifact:
    """The index that is searched; a `UserError` where it is of another dataset, or lacks what the search reads."""
    dataset, index = job.inputs["dataset"], next(job.inputs[role] for role in ENGINES if role in job.inputs)
    if os.path.basename(index.upstream["dataset"]) != dataset.key:
        raise UserError(f"{index.folder}: indexes {index.upstream['dataset']}, not {dataset.folder}; name its index")
    for asked, kept in NEEDED.items():
        if job.params.get(asked) and not index.params.get(kept):
            raise UserError(f"{index.folder}: was made without {kept}, which {asked} needs; name an index with {kept}")
    return index


def parameters(job: Job, index: Artifact) -> tuple[float, float]:
    """k1 and b: told, or as the input `tuned` has chosen them on the same index."""
    if "tuned" not in job.inputs:
        return job.params["k1"], job.params["b"]
    tuned = job.inputs["tuned"]
    if index.key not in map(os.path.basename, tuned.upstream.values()):
        raise UserError(f"{tuned.folder}: was tuned on another index than {index.folder}; tune on this one")
    chosen = json.loads(tuned.path(CHOSEN).read_text(encoding="utf-8"))
    return chosen["k1"], chosen["b"]
