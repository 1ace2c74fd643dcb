"""Stage `bm25`, a run of BM25 or of a variant of it.

Two engines search, Lucene and bm25s. Which of tied passages make the cut, and their order, is decided by document id.
A run is searched in parts: shards share them, and a killed stage resumes after the finished ones.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from tandem.cluster.progress import Progress
from tandem.cluster.work import Parts
from tandem.config.retrieval import lexical_engine
from tandem.data.collection import Collection
from tandem.data.rows import IdRows, index_passages, index_queries
from tandem.data.runs import convert_to_rows, read_rows, write_lists, write_rows
from tandem.data.tables import stream_rows
from tandem.errors import UserError
from tandem.evaluation.measures import (
    CHOSEN,
)
from tandem.retrieval.inputs import require_passages
from tandem.retrieval.lexical import LexicalEngine
from tandem.stages import KINDS
from tandem.stages.base import Json, Params
from tandem.stages.data import (
    TEXTS_FILE,
    Bm25Params,
    Bm25Variant,
)
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing


@contextmanager
def open_lexical_engine(job: Job[Any]) -> Iterator[LexicalEngine]:
    """Open the engine of a job's index, and close it at the end; it is imported only now, as only Lucene needs Java."""
    with closing(lexical_engine[name_engine(job)](job)) as engine:
        yield engine


def name_engine(job: Job[Any]) -> str:
    """Return the engine of a job's index."""
    return next(name for name in lexical_engine if name in job.inputs)


def require_index(job: Job[Any]) -> Artifact:
    """Return the job's index; a `UserError` if it is of other passages, or lacks what the search needs."""
    params: Bm25Variant = job.params
    engine = name_engine(job)
    require_passages(job, engine)
    index = job.inputs[engine]
    has = index.params_as(KINDS[engine].params or Params)
    for name, needed in (("rm3", "vectors"), ("fields", "fields")):
        if getattr(params, name) and not getattr(has, needed, False):
            problem = f"was made without {needed}, which {name} needs"
            raise UserError(f"{index.folder}: {problem}; name an index with {needed}")
    return index


def read_queries(job: Job[Any]) -> dict[str, str]:
    """Return query id → text of the job's split, in file order, each with the texts that were generated for it.

    The query is followed by its first `texts` texts of the input `generated`, with a space before each; empty ones are
    left out (GAR: Mao et al. 2021).
    """
    params: Bm25Variant = job.params
    queries = Collection(job.inputs["dataset"]).queries(params.split)
    if not params.texts:
        return queries
    generated = job.inputs["generated"]
    of, made = os.path.basename(generated.upstream["dataset"]), generated.params
    if (of, made["side"], made.get("split")) != (
        job.inputs["dataset"].key,
        "queries",
        params.split,
    ):
        has = f"holds texts of {made['side']} of {of}, split {made.get('split')}"
        raise UserError(
            f"{generated.folder}: {has}; expected queries of {job.inputs['dataset'].key}, {params.split}"
        )
    if params.texts > made["number"]:
        raise UserError(
            f"{generated.folder}: has {made['number']} texts of a query, fewer than texts: {params.texts}"
        )
    for query, number, text in stream_rows(generated.path(TEXTS_FILE), "id", "number", "text"):
        if text and number < params.texts:
            queries[query] += f" {text}"
    return queries


def find_k1_and_b(job: Job[Bm25Params], index: Artifact) -> tuple[float, float]:
    """Return k1 and b: the parameters, or the values that the input `tuned` has chosen on the same index.

    For other scores than BM25 both are 0.
    """
    if job.params.similarity:
        return 0.0, 0.0  # nothing reads them
    if "tuned" not in job.inputs:
        if job.params.k1 is None or job.params.b is None:
            raise UserError("bm25: k1 and b are needed where the input tuned is missing")
        return job.params.k1, job.params.b
    tuned = job.inputs["tuned"]
    if index.key not in map(os.path.basename, tuned.upstream.values()):
        raise UserError(
            f"{tuned.folder}: was tuned on another index than {index.folder}; tune on this one"
        )
    chosen = json.loads(tuned.path(CHOSEN).read_text(encoding="utf-8"))
    return chosen["k1"], chosen["b"]


def search_parts(job: Job[Bm25Params], parts: Parts) -> dict[int, Json]:
    """Search for the queries of this job's missing parts, and return the facts of each of its parts by number."""
    params = job.params
    collection = Collection(job.inputs["dataset"])
    k1, b = find_k1_and_b(job, require_index(job))
    queries = list(read_queries(job).items())[: params.queries]
    with ExitStack() as stack:

        @cache
        def searched() -> tuple[LexicalEngine, IdRows, IdRows]:
            return (
                stack.enter_context(open_lexical_engine(job)),
                index_passages(collection),
                index_queries(collection),
            )

        def write(span: range, progress: Progress, path: Path) -> Json:
            engine, docs, names = searched()
            ranked = engine.search(queries[span.start : span.stop], k1, b, params.depth, progress)
            write_lists(path, convert_to_rows(job, ranked, docs, names))
            return {"queries": len(span), "engine": engine.facts}

        return parts.complete(len(queries), write)


def run_shard(job: Job[Bm25Params]) -> Json:
    """Search for every n-th part of the queries, beginning with this shard's number."""
    return {"parts": list(search_parts(job, Parts(job, ".parquet")))}


def run(job: Job[Bm25Params]) -> None:
    """Search the input `lucene` or `bm25s` with the queries of the input `dataset`; writes a run.

    With `texts`, texts of the input `generated` are appended to the queries.

    Execution: `workers` threads, `heap` of Java. A query that matches no passage has no line.
    """
    parts = Parts(job, ".parquet")
    searched = search_parts(job, parts)
    with writing(job) as draft:
        lines = write_rows(
            job, draft, chain.from_iterable(read_rows(parts.path(number)) for number in searched)
        )
        draft.facts.update(
            queries=sum(facts["queries"] for facts in searched.values()), lines=lines
        )
        draft.facts.update(searched[0]["engine"])
    parts.remove()
