"""Stage `rerank`: a cross-encoder, or several, puts the top of a run into a new order; what lies deeper keeps its own.

So the measures that look deeper than the re-ranked top stay the first stage's, as the papers print them."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.rows import doc_rows, query_rows
from tandem.data.runs import Floats, followed, iter_run, ranked_order, write_run
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.search.pairs import PairScores, mean_logit, open_judges
from tandem.search.partners import require_dataset
from tandem.search.shards import Asked, score_shard
from tandem.search.store import Array
from tandem.store.job import Job, writing

GROUP = 1 << 20  # pairs looked up and scored together

Ranked = tuple[str, list[str]]


def lists(job: Job) -> Iterator[Ranked]:
    """(query, its documents, best first) of the input run."""
    for query, docs, scores in iter_run(job.inputs["run"].path("run.trec")):
        yield query, [doc for doc, _ in ranked_order(docs, scores)]


def groups(job: Job) -> Iterator[tuple[list[Ranked], Array, Array]]:
    """Queries with their documents, as many at a time as have `GROUP` pairs; query row and passage row of each pair."""
    collection, depth = Collection(job.inputs["dataset"]), job.params["depth"]
    docs, queries = doc_rows(collection), query_rows(collection)
    source = lists(job)
    while group := list(islice(source, max(1, GROUP // depth))):
        tops = [found[:depth] for _, found in group]
        rows = np.repeat(queries.rows([query for query, _ in group]), [len(top) for top in tops])
        yield group, rows, docs.rows([doc for top in tops for doc in top])


def rescored(job: Job, judges: list[PairScores], progress: Progress) -> Iterator[tuple[str, list[str], Floats]]:
    """(query, documents, scores), a bounded group of queries at a time.

    The first `depth` documents have the mean of the cross-encoders' logits, the others whole numbers falling from below
    the lowest.
    """
    for group, queries, passages in groups(job):
        logits = mean_logit(judges, queries, passages, progress)
        ends = np.cumsum([min(job.params["depth"], len(found)) for _, found in group])
        for (query, found), scores in zip(group, np.split(logits, ends[:-1]), strict=True):
            yield query, found, followed(scores, len(found))


def judges(job: Job) -> list[PairScores]:
    """The scores of each cross-encoder; a `UserError` where the inputs do not fit together (see `run`)."""
    require_dataset(job, "run", *(role for role in sorted(job.inputs) if "tokens" in role))
    depth, deepest = job.params["depth"], job.inputs["run"].params["depth"]
    if depth > deepest:
        raise UserError(f"rerank: depth is {depth}, but {job.inputs['run'].folder} goes only {deepest} deep")
    if "model" not in job.inputs:
        return open_judges(job)
    how = job.params["precision"], job.params["batch_tokens"]
    return [PairScores(job.inputs["model"], job.inputs["tokens"], *how)]


def asked(job: Job) -> Iterator[Asked]:
    """The pairs that the stage scores."""
    scorers = judges(job)
    for _, queries, passages in groups(job):
        for one in scorers:
            yield one, queries, passages


def main_shard(words: list[str]) -> int:
    """Command `rerank-shard`: score a share of the pairs; see `score_shard`."""
    return score_shard("rerank", words, asked)


def run(job: Job) -> None:
    """Score the top `depth` of `run` and write `run.trec`, as deep as the run.

    Inputs: dataset, run, and a cross-encoder `model` with its `tokens`, or several (`judge.0` with `judge_tokens.0`, …)
    whose logits are averaged.

    Raises:
        UserError: the run or the token ids belong to another dataset, the run is not that deep, or a model has no
            cross-encoder.
    """
    use_workers(job.execution.workers)
    scores = judges(job)
    total = len(scores) * sum(min(job.params["depth"], len(found)) for _, found in lists(job))
    with writing(job) as draft, Progress(f"rerank {job.key}", total, "pairs") as progress:
        lines = write_run(draft.path("run.trec"), rescored(job, scores, progress), job.key)
        draft.facts |= {"lines": lines, "scored": sum(one.computed for one in scores)}
