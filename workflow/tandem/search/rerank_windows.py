"""Stage `rerank_windows`: cross-encoders score the windows of a run's top documents; a document gets their aggregate.

As `rerank` does, it leaves what lies deeper in its old order. Scores of pairs are kept per window, so that the methods
of aggregation, and runs over the windows themselves, share them.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.rows import doc_rows, query_rows
from tandem.data.runs import Floats, followed, write_run
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.search.aggregation import aggregate
from tandem.search.pairs import PairScores, mean_logit, mean_probability, open_judges
from tandem.search.partners import require_dataset
from tandem.search.rerank import GROUP, Ranked, lists
from tandem.search.shards import Asked, score_shard
from tandem.search.store import Array
from tandem.search.windows import Spans, require_windows
from tandem.store.job import Job, writing

Group = tuple[list[Ranked], Array, Array, Array]
SCORES = {"raw": mean_logit, "probability": mean_probability}  # what of a window is aggregated


def groups(job: Job) -> Iterator[Group]:
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
        asked = np.repeat(queries.rows([query for query, _ in group]), [len(top) for top in tops])
        yield group, np.repeat(asked, sizes), rows, sizes


def rescored(job: Job, judges: list[PairScores], progress: Progress) -> Iterator[tuple[str, list[str], Floats]]:
    """(query, documents, scores), a bounded group of queries at a time."""
    params, scored = job.params, SCORES[job.params["scores"]]
    for group, queries, windows, sizes in groups(job):
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


def asked(job: Job) -> Iterator[Asked]:
    """The pairs that the stage scores."""
    judges = open_scores(job)
    for _, queries, windows, _ in groups(job):
        for one in judges:
            yield one, queries, windows


def main_shard(words: list[str]) -> int:
    """Command `rerank_windows-shard`: score a share of the pairs; see `score_shard`."""
    return score_shard("rerank_windows", words, asked)


def run(job: Job) -> None:
    """Score the windows of the first `depth` documents of `run` and write `run.trec`, as deep as the run.

    Inputs: dataset (the documents), windows, run (over the documents), judge.0 with judge_tokens.0 (of the windows),
    and further ones, whose scores are averaged.

    Raises:
        UserError: the run is over other documents or not that deep, the windows or their token ids are not the
            documents', or a model has no cross-encoder.
    """
    use_workers(job.execution.workers)
    judges = open_scores(job)
    total = len(judges) * sum(len(windows) for _, _, windows, _ in groups(job))
    with writing(job) as draft, Progress(f"rerank_windows {job.key}", total, "pairs") as progress:
        lines = write_run(draft.path("run.trec"), rescored(job, judges, progress), job.key)
        draft.facts |= {"lines": lines, "scored": sum(one.computed for one in judges)}
