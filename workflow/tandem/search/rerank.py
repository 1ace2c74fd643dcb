"""Stage `rerank`: a cross-encoder puts the top of a run into a new order; what lies deeper is dropped."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from tandem.artifact import Job, writing
from tandem.data.collection import Collection
from tandem.data.rows import doc_rows, query_rows
from tandem.data.runs import Floats, iter_run, ranked_order, write_run
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.progress import Progress
from tandem.search.pairs import PairScores
from tandem.search.partners import require_dataset

GROUP = 1 << 20  # pairs looked up and scored together

Ranked = tuple[str, list[str]]


def tops(job: Job) -> Iterator[Ranked]:
    """(query, its best `depth` documents) of the input run."""
    depth: int = job.params["depth"]
    for query, docs, scores in iter_run(job.inputs["run"].path("run.trec")):
        yield query, [doc for doc, _ in ranked_order(docs, scores)[:depth]]


def rescored(job: Job, pairs: PairScores, progress: Progress) -> Iterator[tuple[str, list[str], Floats]]:
    """(query, documents, the cross-encoder's logits), a bounded group of queries at a time."""
    collection = Collection(job.inputs["dataset"])
    docs, queries = doc_rows(collection), query_rows(collection)
    lists = tops(job)
    while group := list(islice(lists, max(1, GROUP // job.params["depth"]))):
        sizes = [len(found) for _, found in group]
        rows = np.repeat(queries.rows([query for query, _ in group]), sizes)
        logits = pairs.score(rows, docs.rows([doc for _, found in group for doc in found]), progress)
        for (query, found), scores in zip(group, np.split(logits, np.cumsum(sizes)[:-1]), strict=True):
            yield query, found, scores


def run(job: Job) -> None:
    """Score the top `depth` of `run` and write `run.trec`.

    Raises:
        UserError: the run or the token ids belong to another dataset, the run is not that deep, or the model has no
            cross-encoder.
    """
    require_dataset(job, "run", "tokens")
    depth, deepest = job.params["depth"], job.inputs["run"].params["depth"]
    if depth > deepest:
        raise UserError(f"rerank: depth is {depth}, but {job.inputs['run'].folder} goes only {deepest} deep")
    use_workers(job.execution.get("workers"))
    pairs = PairScores(job.inputs["model"], job.inputs["tokens"], job.params["precision"], job.params["batch_tokens"])
    total = sum(len(found) for _, found in tops(job))
    with writing(job) as draft, Progress(f"rerank {job.key}", total, "pairs") as progress:
        lines = write_run(draft.path("run.trec"), rescored(job, pairs, progress), job.key)
        draft.facts |= {"lines": lines, "scored": pairs.computed}
