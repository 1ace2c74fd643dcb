"""Judging pools: the probabilities that cross-encoders give the passages which training lists are drawn from."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice

import numpy as np
from scipy.optimize import minimize

from tandem.data.rows import IdRows
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.negatives.drawing import QueryPool
from tandem.negatives.list_report import NegativesReport
from tandem.negatives.sources import Pools
from tandem.retrieval.exact import Array
from tandem.retrieval.pair_scores import (
    PairScores,
    average_logits,
    average_probabilities,
    open_judges,
    to_probability,
)
from tandem.stages.base import Json
from tandem.stages.negatives import CandidatesParams
from tandem.store.job import Job

_QUERIES_PER_GROUP = 1024  # queries whose passages are judged together for a calibration


@dataclass(frozen=True)
class Calibration:
    """σ(slope · x + intercept) of a mean logit x, fitted to so many positives and others of dev."""

    slope: float
    intercept: float
    positives: int
    others: int


class Judge:
    """Give pools the probabilities of a job's judges: σ(slope · x + intercept) of their mean logit x where calibrated.

    Without calibration a probability is the mean of the judges' σ(x). Raises a `UserError` where dev has no pairs.
    """

    def __init__(self, job: Job[CandidatesParams], docs: IdRows, queries: IdRows) -> None:
        use_workers(job.execution.workers)
        self.judges = open_judges(job)
        self.calibration: Calibration | None = None
        self.facts: Json = {}  # for the manifest
        # a run of dev, whose pools follow the rules of the training queries'
        if "calibration" in job.inputs:
            judged = job.params.denoise.calibrate_queries if job.params.denoise else None
            params = job.params.model_copy(
                update={"split": "dev", "queries": judged, "below_positive": None, "behind": None}
            )
            # of the training run
            inputs = {role: artifact for role, artifact in job.inputs.items() if role != "match"}
            inputs["run"] = job.inputs["calibration"]
            pools = Pools(replace(job, params=params, inputs=inputs), docs, queries)
            self.calibration = fit_calibration(
                pools.pooled(pools.source(), NegativesReport()), self.judges, job.key
            )
            self.facts["calibration"] = asdict(self.calibration)

    def __call__(self, group: list[QueryPool]) -> None:
        """Give each pool the probabilities of its window's passages and of its positives."""
        give(group, judge_calibrated(self.judges, self.calibration, *list_pairs(group)))


def judge_calibrated(
    judges: list[PairScores], fit: Calibration | None, queries: Array, passages: Array
) -> Array:
    """Return the judges' probabilities of pairs, float32, shape (pairs,); without calibration the mean of their σ."""
    if fit is None:
        return average_probabilities(judges, queries, passages)
    logits = average_logits(judges, queries, passages)
    return to_probability(fit.slope * logits + fit.intercept).astype(np.float32)


def fit_calibration(
    source: Iterator[QueryPool], judges: list[PairScores], label: str
) -> Calibration:
    """Fit to the mean logits of the known positives and of the other passages of pools; see `fit_line`."""
    positives = [np.empty(0, np.float32)]
    others = [np.empty(0, np.float32)]
    while group := list(islice(source, _QUERIES_PER_GROUP)):
        queries, passages = list_pairs(group)
        give(group, average_logits(judges, queries, passages))
        positives += [pool.judged_positives for pool in group]
        others += [pool.judged for pool in group]
    right = np.concatenate(positives)
    wrong = np.concatenate(others)
    if not len(right) or not len(wrong):
        problem = f"dev has {len(right)} known positives and {len(wrong)} other candidates"
        raise UserError(
            f"candidates {label}: denoise.calibrate is dev, but {problem}; leave it out"
        )
    slope, intercept = fit_line(right, wrong)
    return Calibration(slope, intercept, len(right), len(wrong))


def fit_line(positives: Array, others: Array) -> tuple[float, float]:
    """Fit slope a and intercept b of the logistic regression σ(a x + b) of two kinds of scores that weigh the same.

    Platt 1999, with his targets (n + 1) / (n + 2) and 1 / (n + 2), so that kinds that a threshold tells apart have a
    finite slope. With equal weights a probability of 1/2 means as likely among the one as among the other.
    """
    scores = np.concatenate([positives, others]).astype(np.float64)
    sizes = [len(positives), len(others)]
    counts = np.repeat(sizes, sizes)
    is_positive = np.arange(len(scores)) < len(positives)
    target = np.abs(1 / (counts + 2) - is_positive)
    weights = 0.5 / counts
    middle = scores.mean()
    scale = scores.std() or 1.0
    unit = (scores - middle) / scale

    def compute_loss(line: Array) -> tuple[float, Array]:
        """Return the weighted cross-entropy of a line (slope, intercept), and its gradient."""
        z = line[0] * unit + line[1]
        error = weights * (to_probability(z) - target)
        value = weights * (np.logaddexp(0, z) - target * z)
        gradient = np.array([(error * unit).sum(), error.sum()])
        return float(value.sum()), gradient

    slope, intercept = minimize(compute_loss, np.array([1.0, 0.0]), jac=True, tol=1e-10).x
    return float(slope / scale), float(intercept - slope * middle / scale)


def list_pairs(group: list[QueryPool]) -> tuple[Array, Array]:
    """Return query row and passage row of the pairs that are judged: each pool's window, then its positives."""
    sizes = [len(pool.rows) + len(pool.positives) for pool in group]
    queries = np.repeat([pool.query for pool in group], sizes)
    passages = []
    for pool in group:
        passages += [pool.rows, pool.positives]
    return queries, np.concatenate(passages)


def give(group: list[QueryPool], values: Array) -> None:
    """Give each pool its values, in the order of `list_pairs`."""
    ends = np.cumsum([len(pool.rows) + len(pool.positives) for pool in group])
    for pool, own in zip(group, np.split(values, ends[:-1]), strict=True):
        pool.judged = own[: len(pool.rows)]
        pool.judged_positives = own[len(pool.rows) :]
