"""Stage `teacher`: write a teacher's score of every row of candidates.parquet, for distillation.

The teacher is a cross-encoder, several (the mean of their logits: the ensembles of Hofstätter et al. 2020), a run with
scores, the scores in the dataset's own lists, or a weighted mean of these. Memory: 4 bytes a row of the lists, 24 more
for a weighted mean, and a group of pairs at a time; scores are written as they come.
"""

from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress, warn
from tandem.cluster.work import split_spans
from tandem.contrib.distillation.options import TeacherParams
from tandem.data.collection import LISTS
from tandem.data.runs import get_scored_depth, iter_rows
from tandem.errors import UserError
from tandem.extras.list_scores import GIVEN_SCORES
from tandem.extras.normalisation import NORMALIZATIONS
from tandem.models.device import use_workers
from tandem.models.ragged import join_ranges
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import (
    PairScores,
    Requests,
    average_logits,
    open_judges,
    require_tokens,
    score_shard,
)
from tandem.retrieval.pair_store import pair_keys
from tandem.stages.base import Json
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
    require_dataset(job, "candidates", *runs)
    for role in judges:
        require_tokens(job, role, role.replace("judge_tokens", "judge"))
    use_workers(job.execution.workers)
    lists = read_lists(job.inputs["candidates"].path("candidates.parquet"))
    rows = len(lists.passages)
    with (
        writing(job) as draft,
        Progress(f"teacher {job.key}", rows * len([*judges, *runs]), "pairs") as progress,
    ):
        parts: Iterator[_ScoredRows]
        if job.params.weights or job.params.normalize != "none":
            parts = iter([(slice(None), weigh_scores(job, lists, progress))])
        elif judges:
            parts = score_by_judges(open_judges(job), lists, progress)
        else:
            parts = read_run_scores(job, job.inputs["run"], lists, progress)
        scores = np.lib.format.open_memmap(
            draft.path("scores.npy"), mode="w+", dtype=np.float32, shape=(rows,)
        )
        scores[:] = np.nan
        for rows_of_part, values in parts:
            scores[rows_of_part] = values
        scores.flush()
        draft.facts |= count_scored(scores, lists)
        if not draft.facts["scored"]:
            names = " and ".join(str(job.inputs[role].folder) for role in runs)
            problem = f"teacher {job.key}: {names} has a score for none of the {rows:,} pairs"
            raise UserError(
                f"{problem} of {job.inputs['candidates'].folder}; name a run over the same queries"
            )
        for line in list_score_doubts(job, draft.facts, int(lists.positives.sum())):
            warn(job, draft, line)


def score_by_judges(
    judges: list[PairScores], lists: Lists, progress: Progress
) -> Iterator[_ScoredRows]:
    """Yield the cross-encoders' mean logits; pairs that any stage has scored before are not computed again."""
    for part in split_spans(len(lists.passages), PAIRS_PER_GROUP):
        queries, passages = lists.pair_rows(part.start, part.stop)
        yield slice(part.start, part.stop), average_logits(judges, queries, passages, progress)


def request_scores(job: Job[TeacherParams]) -> Requests:
    """Yield the pairs that the cross-encoders score."""
    lists = read_lists(job.inputs["candidates"].path("candidates.parquet"))
    teachers = open_judges(job)
    for part in split_spans(len(lists.passages), PAIRS_PER_GROUP):
        for teacher in teachers:
            queries, passages = lists.pair_rows(part.start, part.stop)
            yield teacher, queries, passages


def run_shard(job: Job[TeacherParams]) -> dict[str, object]:
    """Score a share of the pairs."""
    return score_shard(job, request_scores)


def weigh_scores(job: Job[TeacherParams], lists: Lists, progress: Progress) -> Array:
    """Return Σ w s / Σ w of the teachers' scores s, each normalised within its list; NaN where a teacher has none.

    Shape (rows,), float32.
    """
    params = job.params
    parts = [score_by_judges([judge], lists, progress) for judge in open_judges(job)]
    parts += [read_run_scores(job, run, lists, progress) for run in job.many("run")]
    weights = params.weights or (1.0,) * len(parts)
    total = np.zeros(len(lists.passages))
    for weight, parts_of_teacher in zip(weights, parts, strict=True):
        scores = np.full(len(lists.passages), np.nan)
        for rows, values in parts_of_teacher:
            scores[rows] = values
        share = weight / sum(weights)
        total += share * normalise_scores(scores, lists.offsets, params.normalize)
    return total.astype(np.float32)


def normalise_scores(scores: Array, offsets: Array, how: str) -> Array:
    """Normalise scores over the scored passages of each list, float64; NaN stays NaN."""
    if how == "none":
        return scores
    result = np.full(len(scores), np.nan)
    for start, stop in pairwise(offsets.tolist()):
        own = scores[start:stop]
        result[start:stop] = np.where(np.isnan(own), np.nan, NORMALIZATIONS[how](own))
    return result


def read_run_scores(
    job: Job[TeacherParams], run: Artifact, lists: Lists, progress: Progress
) -> Iterator[_ScoredRows]:
    """Yield the scores of a run for the pairs it holds, by query."""
    order = np.argsort(lists.queries, kind="stable")
    by_query = lists.queries[order]
    depth = get_scored_depth(run)
    ranked = iter_rows(run, job.inputs["dataset"])
    cut = ((query, docs[:depth], scores[:depth]) for query, docs, scores in ranked)
    while group := list(islice(cut, QUERIES_PER_LOOKUP)):
        # The run's pairs and their scores.
        queries = np.array([query for query, _, _ in group])
        queries_of_pairs = np.repeat(queries, [len(docs) for _, docs, _ in group])
        keys = pair_keys(queries_of_pairs, np.concatenate([docs for _, docs, _ in group]))
        scores = np.concatenate([scores for _, _, scores in group])

        # The lists of these queries, and the pairs of these lists.
        first = np.searchsorted(by_query, queries, "left")
        stop = np.searchsorted(by_query, queries, "right")
        numbers = order[join_ranges(first, stop - first)]
        sizes = lists.offsets[numbers + 1] - lists.offsets[numbers]
        rows = join_ranges(lists.offsets[numbers], sizes)
        targets = pair_keys(np.repeat(lists.queries[numbers], sizes), lists.passages[rows])

        yield rows, look_up(targets, keys, scores)
        progress.add(len(rows))


def list_score_doubts(job: Job[TeacherParams], facts: Json, positives: int) -> Iterator[str]:
    """Yield a line for each reason why the scores may teach less than they seem to."""
    runs = [artifact for role, artifact in job.inputs.items() if role.split(".")[0] == "run"]
    own_lists = [run for run in runs if run.kind == "given"]
    if own_lists and has_list_scores(job.inputs["dataset"]):
        yield (
            "the dataset's own training lists have scores, which are not used: as a teacher `given` has the negatives'"
            f" places, and no positive; `{GIVEN_SCORES}` has these scores"
        )
    if facts["missing_positives"] == positives:
        yield (
            f"none of the {positives:,} positives has a score: a loss that compares with the positive, such as"
            " margin_mse, learns nothing"
        )


def has_list_scores(dataset: Artifact) -> bool:
    """Return whether a passage of a dataset's own training lists has a score."""
    scores = pq.read_table(dataset.path(LISTS), columns=["score"])["score"]
    return bool(scores.null_count < len(scores))


def look_up(targets: Array, keys: Array, scores: Array) -> Array:
    """Return the score of each target key, NaN if it has none; the keys may have any order."""
    order = np.argsort(keys)
    places = np.searchsorted(keys, targets, sorter=order).clip(max=len(keys) - 1)
    nearest = order[places]
    return np.where(keys[nearest] == targets, scores[nearest], np.float32("nan"))


def count_scored(scores: Array, lists: Lists) -> dict[str, int | float]:
    """Return how many pairs have a score, how many do not, of which positives; and the scores' range."""
    is_known = np.isfinite(scores)
    positives = join_ranges(lists.offsets[:-1], lists.positives)
    facts: dict[str, int | float] = {
        "pairs": len(scores),
        "scored": int(is_known.sum()),
        "missing": int((~is_known).sum()),
        "missing_positives": int((~is_known[positives]).sum()),
    }
    if facts["scored"]:
        facts |= {"lowest": float(np.nanmin(scores)), "highest": float(np.nanmax(scores))}
    return facts
