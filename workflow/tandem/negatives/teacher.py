"""Stage `teacher`: a teacher's score of every row of candidates.parquet, for distillation.

The teacher is a cross-encoder, several (the mean of their logits: the ensembles of Hofstätter et al. 2020), a run with
scores, or a weighted mean of both kinds. Memory: 4 bytes a row of the lists, of a weighted mean 24 more, and a group of
pairs at a time; scores are written as they come.
"""

from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np

from tandem.cluster.progress import Progress
from tandem.cluster.work import spans
from tandem.data.runs import NORMALIZATIONS, iter_rows, scored_depth
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.models.ragged import ranges
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import PairScores, Requests, mean_logit, open_judges, score_shard
from tandem.retrieval.pair_store import pair_keys
from tandem.stages.negatives import TeacherParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing
from tandem.training.lists import Lists, read_lists

PAIRS_PER_GROUP = 1 << 20  # pairs scored together
QUERIES_PER_LOOKUP = 1024  # queries of a run looked up together

_ScoredRows = tuple[Array | slice, Array]  # rows of candidates.parquet, and their scores


def run(job: Job[TeacherParams]) -> None:
    """Write `scores.npy`: float32, aligned with the rows of candidates.parquet, NaN where the teacher has no score.

    Inputs: `dataset`, `candidates`, and `judge.i` with `judge_tokens.i`, `run.i`, or `run` alone.
    """
    judges = [f"judge_tokens.{i}" for i in range(len(job.many("judge")))]
    runs = [role for role in job.inputs if role.split(".")[0] == "run"]
    require_dataset(job, "candidates", *judges, *runs)
    use_workers(job.execution.workers)
    lists = read_lists(job.inputs["candidates"].path("candidates.parquet"))
    rows = len(lists.passages)
    with writing(job) as draft, Progress(f"teacher {job.key}", rows * len([*judges, *runs]), "pairs") as progress:
        parts: Iterator[_ScoredRows]
        if job.params.weights or job.params.normalize != "none":
            parts = iter([(slice(None), weighted_scores(job, lists, progress))])
        elif judges:
            parts = scores_of_judges(open_judges(job), lists, progress)
        else:
            parts = scores_of_run(job, job.inputs["run"], lists, progress)
        scores = np.lib.format.open_memmap(draft.path("scores.npy"), mode="w+", dtype=np.float32, shape=(rows,))
        scores[:] = np.nan
        for at, values in parts:
            scores[at] = values
        scores.flush()
        draft.facts |= count_scored(scores, lists)
        if not draft.facts["scored"]:
            names = " and ".join(str(job.inputs[role].folder) for role in runs)
            problem = f"teacher {job.key}: {names} has a score for none of the {rows:,} pairs"
            raise UserError(f"{problem} of {job.inputs['candidates'].folder}; name a run over the same queries")


def scores_of_judges(judges: list[PairScores], lists: Lists, progress: Progress) -> Iterator[_ScoredRows]:
    """The cross-encoders' mean logits; pairs that any stage has scored before are not computed again."""
    for part in spans(len(lists.passages), PAIRS_PER_GROUP):
        yield slice(part.start, part.stop), mean_logit(judges, *lists.pair_rows(part.start, part.stop), progress)


def request_scores(job: Job[TeacherParams]) -> Requests:
    """The pairs that the cross-encoders score."""
    lists, teachers = read_lists(job.inputs["candidates"].path("candidates.parquet")), open_judges(job)
    for part in spans(len(lists.passages), PAIRS_PER_GROUP):
        for teacher in teachers:
            yield teacher, *lists.pair_rows(part.start, part.stop)


def run_shard(job: Job[TeacherParams]) -> dict[str, object]:
    """Score a share of the pairs."""
    return score_shard(job, request_scores)


def weighted_scores(job: Job[TeacherParams], lists: Lists, progress: Progress) -> Array:
    """Σ w s / Σ w of the teachers' scores s, each normalised within its list; NaN where a teacher has none.

    Shape (rows,), float32.
    """
    params = job.params
    parts = [scores_of_judges([judge], lists, progress) for judge in open_judges(job)]
    parts += [scores_of_run(job, run, lists, progress) for run in job.many("run")]
    weights = params.weights or (1.0,) * len(parts)
    total = np.zeros(len(lists.passages))
    for weight, of_teacher in zip(weights, parts, strict=True):
        scores = np.full(len(lists.passages), np.nan)
        for at, values in of_teacher:
            scores[at] = values
        total += weight / sum(weights) * normalized(scores, lists.offsets, params.normalize)
    return total.astype(np.float32)


def normalized(scores: Array, offsets: Array, how: str) -> Array:
    """Scores normalised over the scored passages of each list, float64; NaN stays NaN."""
    if how == "none":
        return scores
    result = np.full(len(scores), np.nan)
    for start, stop in pairwise(offsets.tolist()):
        own = scores[start:stop]
        result[start:stop] = np.where(np.isnan(own), np.nan, NORMALIZATIONS[how](own))
    return result


def scores_of_run(job: Job[TeacherParams], run: Artifact, lists: Lists, progress: Progress) -> Iterator[_ScoredRows]:
    """The scores of a run for the pairs it holds, by query."""
    order = np.argsort(lists.queries, kind="stable")
    by_query = lists.queries[order]
    source, depth = iter_rows(run, job.inputs["dataset"]), scored_depth(run)
    while group := list(
        islice(((query, docs[:depth], own[:depth]) for query, docs, own in source), QUERIES_PER_LOOKUP)
    ):
        query_row = np.array([query for query, _, _ in group])
        of_run = np.repeat(query_row, [len(docs) for _, docs, _ in group])
        keys = pair_keys(of_run, np.concatenate([docs for _, docs, _ in group]))
        first, last = (np.searchsorted(by_query, query_row, side) for side in ("left", "right"))
        own = order[ranges(first, last - first)]
        sizes = lists.offsets[own + 1] - lists.offsets[own]
        rows = ranges(lists.offsets[own], sizes)
        targets = pair_keys(np.repeat(lists.queries[own], sizes), lists.passages[rows])
        yield rows, lookup(targets, keys, np.concatenate([scores for _, _, scores in group]))
        progress.add(len(rows))


def lookup(targets: Array, keys: Array, scores: Array) -> Array:
    """The score of each target key, NaN for none; the keys may stand in any order."""
    order = np.argsort(keys)
    at = order[np.searchsorted(keys, targets, sorter=order).clip(max=len(keys) - 1)]
    return np.where(keys[at] == targets, scores[at], np.float32("nan"))


def count_scored(scores: Array, lists: Lists) -> dict[str, int | float]:
    """How many pairs have a score, how many do not, of which positives; and the scores' range."""
    known = np.isfinite(scores)
    positives = ranges(lists.offsets[:-1], lists.positives)
    facts: dict[str, int | float] = {"pairs": len(scores), "scored": int(known.sum()), "missing": int((~known).sum())}
    facts["missing_positives"] = int((~known[positives]).sum())
    if facts["scored"]:
        facts |= {"lowest": float(np.nanmin(scores)), "highest": float(np.nanmax(scores))}
    return facts
