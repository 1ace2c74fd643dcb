"""Stage `rerank`: a cross-encoder, or several, puts the top of a run into a new order; what lies deeper keeps its own.

So the measures that look deeper than the re-ranked top stay the first stage's, as the papers print them."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from tandem.artifact import Job, writing
from tandem.data.collection import Collection
from tandem.data.rows import doc_rows, query_rows
from tandem.data.runs import Floats, followed, iter_run, ranked_order, write_run
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.progress import Progress
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import Asked, PairScores, mean_logit, mean_probability, open_judges, score_shard
from tandem.retrieval.pair_store import Array
from tandem.retrieval.windows import Spans, aggregate, require_windows

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


def run_shard(words: list[str]) -> int:
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


Group = tuple[list[Ranked], Array, Array, Array]
SCORES = {"raw": mean_logit, "probability": mean_probability}  # what of a window is aggregated


def window_groups(job: Job) -> Iterator[Group]:
    """Queries with their documents, as many at a time as have about `GROUP` pairs.

    Yields:
        The lists; of each pair the query's row and the window's row, list after list and document after document; and
        the number of windows of each of the lists' first `depth` documents.
    """
    windows, depth = Collection(job.inputs["windows"]), job.params["depth"]
    docs, queries, spans = doc_rows(Collection(job.inputs["dataset"])), query_rows(windows), Spans(windows)
    most = 1 if job.params["method"] == "first" else None
    size = max(1, GROUP * len(spans) // (depth * windows.passages))
    source = lists(job)
    while group := list(islice(source, size)):
        tops = [found[:depth] for _, found in group]
        rows, sizes = spans.rows(docs.rows([doc for top in tops for doc in top]), most)
        window_requests = np.repeat(queries.rows([query for query, _ in group]), [len(top) for top in tops])
        yield group, np.repeat(window_requests, sizes), rows, sizes


def rescored_windows(job: Job, judges: list[PairScores], progress: Progress) -> Iterator[tuple[str, list[str], Floats]]:
    """(query, documents, scores), a bounded group of queries at a time."""
    params, scored = job.params, SCORES[job.params["scores"]]
    for group, queries, windows, sizes in window_groups(job):
        scores = scored(judges, queries, windows, progress)
        values = aggregate(params["method"], scores, sizes, params.get("k", 1)).astype(np.float32)
        ends = np.cumsum([min(params["depth"], len(found)) for _, found in group])
        for (query, found), mine in zip(group, np.split(values, ends[:-1]), strict=True):
            yield query, found, followed(mine, len(found))


def open_scores(job: Job) -> list[PairScores]:
    """The scores of each cross-encoder; a `UserError` where the inputs do not fit together (see `run`)."""
    require_dataset(job, "run")
    for role in job.inputs:
        if role.startswith("judge_tokens."):
            require_windows(job, role)
    depth, deepest = job.params["depth"], job.inputs["run"].params["depth"]
    if depth > deepest:
        raise UserError(f"rerank_windows: depth is {depth}, but {job.inputs['run'].folder} goes only {deepest} deep")
    return open_judges(job)


def window_requests(job: Job) -> Iterator[Asked]:
    """The pairs that the stage scores."""
    judges = open_scores(job)
    for _, queries, windows, _ in window_groups(job):
        for one in judges:
            yield one, queries, windows


def run_windows_shard(words: list[str]) -> int:
    """Command `rerank-windows-shard`: score a share of the pairs; see `score_shard`."""
    return score_shard("rerank_windows", words, window_requests)


def run_windows(job: Job) -> None:
    """Score the windows of the first `depth` documents of `run` and write `run.trec`, as deep as the run.

    Inputs: dataset (the documents), windows, run (over the documents), judge.0 with judge_tokens.0 (of the windows),
    and further ones, whose scores are averaged.

    Raises:
        UserError: the run is over other documents or not that deep, the windows or their token ids are not the
            documents', or a model has no cross-encoder.
    """
    use_workers(job.execution.workers)
    judges = open_scores(job)
    total = len(judges) * sum(len(windows) for _, _, windows, _ in window_groups(job))
    with writing(job) as draft, Progress(f"rerank_windows {job.key}", total, "pairs") as progress:
        lines = write_run(draft.path("run.trec"), rescored_windows(job, judges, progress), job.key)
        draft.facts |= {"lines": lines, "scored": sum(one.computed for one in judges)}
