"""Stages `rerank` and `rerank_windows`: cross-encoders reorder the top of a run; the documents below keep their order.

In `rerank_windows` the windows of the top documents are scored, and a document gets their aggregate.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection, join_contents
from tandem.data.columns import DatasetNames, RankedRows
from tandem.data.rows import Rows, index_queries
from tandem.data.runs import append_below, iter_rows, write_rows
from tandem.models.device import use_workers
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import (
    require_dataset,
    require_numbers,
    require_run_depth,
    require_tokens,
    require_windows,
)
from tandem.retrieval.pair_scores import (
    PairScores,
    Requests,
    average_logits,
    average_probabilities,
    open_judges,
    score_shard,
)
from tandem.retrieval.windows import DocumentSpans, aggregate_windows
from tandem.stages.retrieval import RerankParams, RerankWindowsParams, pair_scorer
from tandem.store.job import Job, writing

PAIRS_PER_LOOKUP = 1 << 20  # pairs looked up and scored together
# what of a window is aggregated
_WINDOW_SCORES = {"raw": average_logits, "probability": average_probabilities}

_RankedDocuments = tuple[int, Rows]  # a query's row and its documents' rows, best first


def iterate_groups(
    job: Job[RerankParams],
) -> Iterator[tuple[list[_RankedDocuments], Array, Array, Array]]:
    """Yield lists of the input run, about `PAIRS_PER_LOOKUP` pairs at a time, and the pairs of their first `depth`.

    These are the query's row and that of the passage or window, (pairs,), and each document's number of pairs.
    """
    depth = job.params.depth
    names = DatasetNames(job.inputs["dataset"])
    source = (
        (query, rows) for query, rows, _ in iter_rows(job.inputs["run"], job.inputs["dataset"])
    )
    if isinstance(job.params, RerankWindowsParams):
        windows = Collection(job.inputs["windows"])
        queries = index_queries(windows)
        spans = DocumentSpans(windows)
        most = 1 if job.params.method == "first" else None
        size = PAIRS_PER_LOOKUP * len(spans) // (depth * windows.passages)
    else:
        queries = None
        spans = None
        size = PAIRS_PER_LOOKUP // depth
    while group := list(islice(source, max(1, size))):
        tops = [ranked[:depth] for _, ranked in group]
        own = np.array([query for query, _ in group])
        if queries is not None:
            own = queries.rows([names.queries[query] for query in own.tolist()])
        owners = np.repeat(own, [len(top) for top in tops])
        passages = np.concatenate(tops)
        if spans is None:
            yield group, owners, passages, np.ones(len(passages), np.int64)
        else:
            rows, sizes = spans.list_windows(passages, most)
            yield group, np.repeat(owners, sizes), rows, sizes


def score_texts(
    job: Job[RerankParams],
    group: list[_RankedDocuments],
    names: DatasetNames,
    texts: dict[str, str],
) -> Array:
    """Return the scores of the lists' first `depth` documents by a plugin's scorer, float32, shape (pairs,)."""
    params = job.params
    score = pair_scorer[job.params.scorer or ""]
    tops = [(names.queries[query], names.of(ranked[: params.depth])) for query, ranked in group]
    passages = names.collection.texts({doc for _, top in tops for doc in top})
    parts = []
    for query, top in tops:
        own = score(texts[query], [join_contents(*passages[doc]) for doc in top], **params.options)
        parts.append(
            require_numbers(own, len(top), f"{job.kind}: {params.scorer}, passages of {query}")
        )
    return np.concatenate(parts).astype(np.float32)


def rerank_pairs(
    job: Job[RerankParams], judges: list[PairScores], progress: Progress
) -> Iterator[RankedRows]:
    """(the query's row, its documents' rows, their scores), a bounded group of queries at a time.

    The first `depth` documents have the mean of the cross-encoders' logits, or the aggregate of their windows' scores,
    the others whole numbers falling from below the lowest. Instead of cross-encoders a plugin's scorer may decide.
    """
    params = job.params
    names = DatasetNames(job.inputs["dataset"])
    texts = names.collection.query_texts() if params.scorer else {}
    for group, queries, passages, sizes in iterate_groups(job):
        if isinstance(params, RerankWindowsParams):
            of_windows = _WINDOW_SCORES[params.scores](judges, queries, passages, progress)
            scores = aggregate_windows(params.method, of_windows, sizes, params.k).astype(
                np.float32
            )
        elif params.scorer:
            scores = score_texts(job, group, names, texts)
            progress.add(len(scores))
        else:
            scores = average_logits(judges, queries, passages, progress)
        ends = np.cumsum([min(params.depth, len(ranked)) for _, ranked in group])
        for (query, ranked), own in zip(group, np.split(scores, ends[:-1]), strict=True):
            yield query, ranked, append_below(own, len(ranked))


def open_pair_scores(job: Job[RerankParams]) -> list[PairScores]:
    """Return the scores of each cross-encoder; a `UserError` where the inputs do not fit together (see `run`)."""
    tokens = sorted(role for role in job.inputs if "tokens" in role)
    require_dataset(job, "run")
    if "windows" in job.inputs:
        require_windows(job, *tokens)
    else:
        for role in tokens:
            require_tokens(
                job, role, "model" if role == "tokens" else role.replace("judge_tokens", "judge")
            )
    require_run_depth(job, job.params.depth)
    if "model" not in job.inputs:
        return open_judges(job)
    return [
        PairScores(
            job.inputs["model"], job.inputs["tokens"], job.params.precision, job.params.batch_tokens
        )
    ]


def request_pairs(job: Job[RerankParams]) -> Requests:
    """Yield the pairs that the stage scores."""
    judges = open_pair_scores(job)
    for _, queries, passages, _ in iterate_groups(job):
        for judge in judges:
            yield judge, queries, passages


def run_shard(job: Job[RerankParams]) -> dict[str, object]:
    """Score a share of the pairs."""
    return score_shard(job, request_pairs)


def run(job: Job[RerankParams]) -> None:
    """Score the top `depth` of `run`, or the windows of these documents, and write a run as deep as the run.

    Inputs: dataset, run, and a cross-encoder `model` with its `tokens`, or several (`judge.0` with `judge_tokens.0`, …)
    whose scores are averaged; neither where a plugin scores. With `windows`, token ids are those of the windows.
    """
    use_workers(job.execution.workers)
    judges = open_pair_scores(job)
    total = max(1, len(judges)) * sum(len(queries) for _, queries, _, _ in iterate_groups(job))
    with writing(job) as draft, Progress(f"{job.kind} {job.key}", total, "pairs") as progress:
        lines = write_rows(job, draft, rerank_pairs(job, judges, progress))
        draft.facts |= {"lines": lines, "scored": sum(judge.computed for judge in judges)}
