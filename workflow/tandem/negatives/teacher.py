"""Stage `teacher`: a teacher's score of every row of candidates.parquet, for distillation.

The teacher is a cross-encoder, several (the mean of their logits: the ensembles of Hofstätter et al. 2020), or a run
with scores. Memory: 4 bytes a row of the lists, and a group of pairs at a time; scores are written as they come.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.rows import doc_rows, query_rows
from tandem.data.runs import iter_run, scored_depth
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.models.ragged import Ids, ranges
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import Requests, mean_logit, open_judges, score_shard
from tandem.retrieval.pair_store import pair_keys
from tandem.stages.negatives import TeacherParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing
from tandem.training.lists import Lists, read_lists

GROUP = 1 << 20  # pairs scored together
QUERIES = 1024  # queries of a run looked up together

Part = tuple[Ids | slice, Ids]  # rows of candidates.parquet, and their scores


def run(job: Job[TeacherParams]) -> None:
    """Write `scores.npy`: float32, aligned with the rows of candidates.parquet, NaN where the teacher has no score.

    Inputs: `dataset`, `candidates`, and either `judge.i` with `judge_tokens.i` or `run`.
    """
    judges = [f"judge_tokens.{i}" for i in range(len(job.many("judge")))]
    require_dataset(job, "candidates", *judges, *(["run"] if "run" in job.inputs else []))
    use_workers(job.execution.workers)
    lists = read_lists(job.inputs["candidates"].path("candidates.parquet"))
    rows = len(lists.passages)
    with writing(job) as draft, Progress(f"teacher {job.key}", rows * max(1, len(judges)), "pairs") as progress:
        parts = scores_of_judges(job, lists, progress) if judges else scores_of_run(job, lists, progress)
        scores = write_scores(draft.path("scores.npy"), rows, parts)
        draft.facts |= count(scores, lists)
        if not draft.facts["scored"]:
            problem = f"teacher {job.key}: {job.inputs['run'].folder} has a score for none of the {rows:,} pairs"
            raise UserError(f"{problem} of {job.inputs['candidates'].folder}; name a run over the same queries")


def scores_of_judges(job: Job[TeacherParams], lists: Lists, progress: Progress) -> Iterator[Part]:
    """The cross-encoders' mean logits; pairs that any stage has scored before are not computed again."""
    teachers = open_judges(job)
    for part in groups(lists):
        yield part, mean_logit(teachers, *lists.pairs(part.start, part.stop), progress)


def groups(lists: Lists) -> Iterator[slice]:
    """The rows of candidates.parquet, `GROUP` at a time."""
    for start in range(0, len(lists.passages), GROUP):
        yield slice(start, min(start + GROUP, len(lists.passages)))


def requests(job: Job[TeacherParams]) -> Requests:
    """The pairs that the cross-encoders score."""
    lists, teachers = read_lists(job.inputs["candidates"].path("candidates.parquet")), open_judges(job)
    for part in groups(lists):
        for teacher in teachers:
            yield teacher, *lists.pairs(part.start, part.stop)


run_shard = partial(score_shard, requests=requests)
"""Score a share of the pairs."""


def scores_of_run(job: Job[TeacherParams], lists: Lists, progress: Progress) -> Iterator[Part]:
    """The scores of a run for the pairs it holds, by query."""
    collection = Collection(job.inputs["dataset"])
    docs, queries = doc_rows(collection), query_rows(collection)
    order = np.argsort(lists.queries, kind="stable")
    by_query = lists.queries[order]
    source = scored(job.inputs["run"])
    while group := list(islice(source, QUERIES)):
        query_row = queries.rows([query for query, _, _ in group])
        of_run = np.repeat(query_row, [len(names) for _, names, _ in group])
        keys = pair_keys(of_run, docs.rows([name for _, names, _ in group for name in names]))
        first, last = (np.searchsorted(by_query, query_row, side) for side in ("left", "right"))
        own = order[ranges(first, last - first)]
        sizes = lists.offsets[own + 1] - lists.offsets[own]
        rows = ranges(lists.offsets[own], sizes)
        targets = pair_keys(np.repeat(lists.queries[own], sizes), lists.passages[rows])
        yield rows, lookup(targets, keys, np.concatenate([scores for _, _, scores in group]))
        progress.add(len(rows))


def scored(run: Artifact) -> Iterator[tuple[str, list[str], Ids]]:
    """(query, documents, scores) of a run, as far as its scores mean something."""
    depth = scored_depth(run)
    for query, docs, scores in iter_run(run.path("run.trec")):
        yield query, docs[:depth], scores[:depth]


def lookup(targets: Ids, keys: Ids, scores: Ids) -> Ids:
    """The score of each target key, NaN for none; the keys may stand in any order."""
    order = np.argsort(keys)
    at = order[np.searchsorted(keys, targets, sorter=order).clip(max=len(keys) - 1)]
    values: Ids = np.where(keys[at] == targets, scores[at], np.float32("nan"))
    return values


def write_scores(path: Path, rows: int, parts: Iterator[Part]) -> Ids:
    """Write the scores in place, part by part; returns them, memory-mapped."""
    scores = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows,))
    scores[:] = np.nan
    for at, values in parts:
        scores[at] = values
    scores.flush()
    return scores


def count(scores: Ids, lists: Lists) -> dict[str, int | float]:
    """How many pairs have a score, how many do not, of which positives; and the scores' range."""
    known = np.isfinite(scores)
    positives = ranges(lists.offsets[:-1], lists.positives)
    facts: dict[str, int | float] = {"pairs": len(scores), "scored": int(known.sum()), "missing": int((~known).sum())}
    facts["missing_positives"] = int((~known[positives]).sum())
    if facts["scored"]:
        facts |= {"lowest": float(np.nanmin(scores)), "highest": float(np.nanmax(scores))}
    return facts
