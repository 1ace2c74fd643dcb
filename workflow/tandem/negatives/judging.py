"""Judging pools: the probabilities that cross-encoders give the passages which training lists are drawn from."""

from collections.abc import Callable
from functools import partial
from itertools import islice

import numpy as np

from tandem.data.collection import Collection
from tandem.data.rows import doc_rows, query_rows
from tandem.models.device import use_workers
from tandem.models.ragged import Ids
from tandem.negatives.candidates import GROUP, Report, pools
from tandem.negatives.lists import Pool
from tandem.retrieval.pair_scores import PairScores, Requests, mean_probability, open_judges, score_shard
from tandem.stages.negatives import CandidatesParams
from tandem.store.job import Job


def open_judge(job: Job[CandidatesParams]) -> Callable[[list[Pool]], None]:
    """What gives pools the probabilities of a job's judges."""
    use_workers(job.execution.workers)
    return partial(judge, judges=open_judges(job))


def pairs(group: list[Pool]) -> tuple[Ids, Ids]:
    """Query row and passage row of the pairs that are judged: each pool's window, then its positives."""
    queries = np.repeat([pool.query for pool in group], [len(pool.rows) + len(pool.positives) for pool in group])
    return queries, np.concatenate([part for pool in group for part in (pool.rows, pool.positives)])


def judge(group: list[Pool], judges: list[PairScores]) -> None:
    """Give each pool the judges' mean probability of its window's passages and of its positives."""
    ends = np.cumsum([len(pool.rows) + len(pool.positives) for pool in group])
    probabilities = mean_probability(judges, *pairs(group))
    for pool, own in zip(group, np.split(probabilities, ends[:-1]), strict=True):
        pool.judged, pool.judged_positives = own[: len(pool.rows)], own[len(pool.rows) :]


def requests(job: Job[CandidatesParams]) -> Requests:
    """The pairs that the judges score."""
    judges, collection = open_judges(job), Collection(job.inputs["dataset"])
    source = pools(job, doc_rows(collection), query_rows(collection), Report(job.params.negatives))
    while group := list(islice(source, GROUP)):
        for scores in judges:
            yield scores, *pairs(group)


run_shard = partial(score_shard, requests=requests)
"""Score a share of the pairs that are judged."""
