"""Stages `rerank` and `rerank_windows`: cross-encoders reorder the top of a run; the documents below keep their order.

So the measures that look deeper than the re-ranked top stay the first stage's, as the papers print them. In
`rerank_windows` the windows of the top documents are scored, and a document gets their aggregate. Scores of pairs are
stored per window, so that the methods of aggregation, and runs over the windows themselves, share them.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from tandem.artifact import Job, writing
from tandem.data.collection import Collection
from tandem.data.rows import doc_rows, query_rows
from tandem.data.runs import Floats, followed, iter_run, ranked_order, write_run
from tandem.models.device import use_workers
from tandem.progress import Progress
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import require_dataset, require_depth
from tandem.retrieval.pair_scores import PairScores, Requests, mean_logit, mean_probability, open_judges, score_shard
from tandem.retrieval.windows import Spans, aggregate, require_windows
from tandem.stages.retrieval import RerankParams, RerankWindowsParams

GROUP = 1 << 20  # pairs looked up and scored together
SCORES = {"raw": mean_logit, "probability": mean_probability}  # what of a window is aggregated

Ranked = tuple[str, list[str]]
Scored = Iterator[tuple[str, list[str], Floats]]


def lists(job: Job[Any]) -> Iterator[Ranked]:
    """(query, its documents, best first) of the input run."""
    for query, docs, scores in iter_run(job.inputs["run"].path("run.trec")):
        yield query, [doc for doc, _ in ranked_order(docs, scores)]


def groups(job: Job[RerankParams]) -> Iterator[tuple[list[Ranked], Array, Array]]:
    """Queries with their documents, `GROUP` pairs at a time; query row and passage row of each pair."""
    collection, depth = Collection(job.inputs["dataset"]), job.params.depth
    docs, queries = doc_rows(collection), query_rows(collection)
    source = lists(job)
    while group := list(islice(source, max(1, GROUP // depth))):
        tops = [ranked[:depth] for _, ranked in group]
        rows = np.repeat(queries.rows([query for query, _ in group]), [len(top) for top in tops])
        yield group, rows, docs.rows([doc for top in tops for doc in top])


def rescored(job: Job[RerankParams], judges: list[PairScores], progress: Progress) -> Scored:
    """(query, documents, scores), a bounded group of queries at a time.

    The first `depth` documents have the mean of the cross-encoders' logits, the others whole numbers falling from below
    the lowest.
    """
    for group, queries, passages in groups(job):
        yield from _followed(group, mean_logit(judges, queries, passages, progress), job.params.depth)


def _followed(group: list[Ranked], scores: Floats, depth: int) -> Scored:
    """The lists of a group with the scores of their first `depth` documents, which stand one after the other."""
    ends = np.cumsum([min(depth, len(ranked)) for _, ranked in group])
    for (query, ranked), own in zip(group, np.split(scores, ends[:-1]), strict=True):
        yield query, ranked, followed(own, len(ranked))


def open_scores(job: Job[RerankParams]) -> list[PairScores]:
    """The scores of each cross-encoder; a `UserError` where the inputs do not fit together (see `run`)."""
    require_dataset(job, "run", *(role for role in sorted(job.inputs) if "tokens" in role))
    require_depth(job, job.params.depth)
    if "model" not in job.inputs:
        return open_judges(job)
    options = job.params.precision, job.params.batch_tokens
    return [PairScores(job.inputs["model"], job.inputs["tokens"], *options)]


def requests(job: Job[RerankParams]) -> Requests:
    """The pairs that the stage scores."""
    judges = open_scores(job)
    for _, queries, passages in groups(job):
        for judge in judges:
            yield judge, queries, passages


def run_shard(job: Job[RerankParams]) -> dict[str, object]:
    """Score a share of the pairs; see `score_shard`."""
    return score_shard(job, requests)


def run(job: Job[RerankParams]) -> None:
    """Score the top `depth` of `run` and write `run.trec`, as deep as the run.

    Inputs: dataset, run, and a cross-encoder `model` with its `tokens`, or several (`judge.0` with `judge_tokens.0`, …)
    whose logits are averaged.

    Raises:
        UserError: the run or the token ids belong to another dataset, the run is not that deep, or a model has no
            cross-encoder.
    """
    use_workers(job.execution.workers)
    judges = open_scores(job)
    total = len(judges) * sum(min(job.params.depth, len(ranked)) for _, ranked in lists(job))
    _write(job, judges, total, rescored)


def _write(
    job: Job[Any],
    judges: list[PairScores],
    total: int,
    rescore: Callable[[Job[Any], list[PairScores], Progress], Scored],
) -> None:
    """Score `total` pairs and write the run."""
    with writing(job) as draft, Progress(f"{job.kind} {job.key}", total, "pairs") as progress:
        lines = write_run(draft.path("run.trec"), rescore(job, judges, progress), job.key)
        draft.facts |= {"lines": lines, "scored": sum(judge.computed for judge in judges)}


def window_groups(job: Job[RerankWindowsParams]) -> Iterator[tuple[list[Ranked], Array, Array, Array]]:
    """Queries with their documents, about `GROUP` pairs at a time.

    Yields:
        The lists; of each pair the query's row and the window's row, list after list and document after document; and
        the number of windows of each of the lists' first `depth` documents.
    """
    windows, depth = Collection(job.inputs["windows"]), job.params.depth
    docs, queries, spans = doc_rows(Collection(job.inputs["dataset"])), query_rows(windows), Spans(windows)
    most = 1 if job.params.method == "first" else None
    size = max(1, GROUP * len(spans) // (depth * windows.passages))
    source = lists(job)
    while group := list(islice(source, size)):
        tops = [ranked[:depth] for _, ranked in group]
        rows, sizes = spans.rows(docs.rows([doc for top in tops for doc in top]), most)
        per_document = np.repeat(queries.rows([query for query, _ in group]), [len(top) for top in tops])
        yield group, np.repeat(per_document, sizes), rows, sizes


def rescored_windows(job: Job[RerankWindowsParams], judges: list[PairScores], progress: Progress) -> Scored:
    """(query, documents, scores), a bounded group of queries at a time."""
    params = job.params
    for group, queries, windows, sizes in window_groups(job):
        scores = SCORES[params.scores](judges, queries, windows, progress)
        values = aggregate(params.method, scores, sizes, params.k).astype(np.float32)
        yield from _followed(group, values, params.depth)


def open_window_scores(job: Job[RerankWindowsParams]) -> list[PairScores]:
    """The scores of each cross-encoder; a `UserError` where the inputs do not fit together (see `run_windows`)."""
    require_dataset(job, "run")
    for role in job.inputs:
        if role.startswith("judge_tokens."):
            require_windows(job, role)
    require_depth(job, job.params.depth)
    return open_judges(job)


def window_requests(job: Job[RerankWindowsParams]) -> Requests:
    """The pairs that the stage scores."""
    judges = open_window_scores(job)
    for _, queries, windows, _ in window_groups(job):
        for judge in judges:
            yield judge, queries, windows


def run_windows_shard(job: Job[RerankWindowsParams]) -> dict[str, object]:
    """Score a share of the pairs; see `score_shard`."""
    return score_shard(job, window_requests)


def run_windows(job: Job[RerankWindowsParams]) -> None:
    """Score the windows of the first `depth` documents of `run` and write `run.trec`, as deep as the run.

    Inputs: dataset (the documents), windows, run (over the documents), judge.0 with judge_tokens.0 (of the windows),
    and further ones, whose scores are averaged.

    Raises:
        UserError: the run is over other documents or not that deep, the windows or their token ids are not the
            documents', or a model has no cross-encoder.
    """
    use_workers(job.execution.workers)
    judges = open_window_scores(job)
    total = len(judges) * sum(len(windows) for _, _, windows, _ in window_groups(job))
    _write(job, judges, total, rescored_windows)
