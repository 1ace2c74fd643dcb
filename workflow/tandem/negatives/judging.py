"""Judge pools: have cross-encoders compute the probability that each of their passages is relevant."""

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

_QUERIES_PER_GROUP = 1024  # queries whose passages are judged together when a calibration is fitted


@dataclass(frozen=True)
class Calibration:
    """Map a mean logit x to the probability σ(slope · x + intercept).

    Attributes:
        positives, others: numbers of passages of dev that it was fitted to.
    """

    slope: float
    intercept: float
    positives: int
    others: int


class Judge:
    """Compute the probabilities of pools' passages by a job's judges.

    A calibrated probability is σ(slope · x + intercept) of the judges' mean logit x; without calibration it is the mean
    of their σ(x).

    Raises:
        UserError: a calibration is configured, but dev has no pairs to fit it to.
    """

    def __init__(self, job: Job[CandidatesParams], docs: IdRows, queries: IdRows) -> None:
        use_workers(job.execution.workers)
        self.judges = open_judges(job)
        self.calibration: Calibration | None = None
        self.facts: Json = {}  # for the manifest
        # It is fitted to pools of dev, made from a run by the same rules as those of the training queries.
        if "calibration" in job.inputs:
            judged = job.params.denoise.calibrate_queries if job.params.denoise else None
            params = job.params.model_copy(
                update={"split": "dev", "queries": judged, "below_positive": None, "behind": None}
            )
            # `match` belongs to the run of the training queries.
            inputs = {role: artifact for role, artifact in job.inputs.items() if role != "match"}
            inputs["run"] = job.inputs["calibration"]
            pools = Pools(replace(job, params=params, inputs=inputs), docs, queries)
            dev_pools = pools.make_pools(pools.read_source(), NegativesReport())
            self.calibration = fit_calibration(dev_pools, self.judges, job.key)
            self.facts["calibration"] = asdict(self.calibration)

    def __call__(self, group: list[QueryPool]) -> None:
        """Set each pool's probabilities: of the passages of its window, and of its positives."""
        set_judgements(group, judge_calibrated(self.judges, self.calibration, *list_pairs(group)))


def judge_calibrated(
    judges: list[PairScores], fit: Calibration | None, queries: Array, passages: Array
) -> Array:
    """Return the judges' probabilities of pairs, float32, shape (pairs,); see `Judge`."""
    if fit is None:
        return average_probabilities(judges, queries, passages)
    logits = average_logits(judges, queries, passages)
    return to_probability(fit.slope * logits + fit.intercept).astype(np.float32)


def fit_calibration(
    source: Iterator[QueryPool], judges: list[PairScores], label: str
) -> Calibration:
    """Fit a calibration to the mean logits of pools' known positives and of their other passages; see `fit_line`."""
    positives = [np.empty(0, np.float32)]
    others = [np.empty(0, np.float32)]
    while group := list(islice(source, _QUERIES_PER_GROUP)):
        queries, passages = list_pairs(group)
        set_judgements(group, average_logits(judges, queries, passages))
        positives += [pool.judged_positives for pool in group]
        others += [pool.judged for pool in group]
    known = np.concatenate(positives)
    other = np.concatenate(others)
    if not len(known) or not len(other):
        problem = f"dev has {len(known)} known positives and {len(other)} other candidates"
        raise UserError(
            f"candidates {label}: denoise.calibrate is dev, but {problem}; leave it out"
        )
    slope, intercept = fit_line(known, other)
    return Calibration(slope, intercept, len(known), len(other))


def fit_line(positives: Array, others: Array) -> tuple[float, float]:
    """Fit a logistic regression σ(a x + b) that separates the scores x of positives from others; return (a, b).

    It has the targets (n + 1) / (n + 2) and 1 / (n + 2) of Platt 1999, so that the slope is finite even if a threshold
    separates the two kinds. Both kinds have the same weight: a score of probability 1/2 is as likely in one as in the
    other.
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
    """Return query row and passage row of the pairs to judge: for each pool its window, then its positives."""
    sizes = [len(pool.rows) + len(pool.positives) for pool in group]
    queries = np.repeat([pool.query for pool in group], sizes)
    passages = []
    for pool in group:
        passages += [pool.rows, pool.positives]
    return queries, np.concatenate(passages)


def set_judgements(group: list[QueryPool], values: Array) -> None:
    """Set the judgements of each pool from values in the order of `list_pairs`."""
    ends = np.cumsum([len(pool.rows) + len(pool.positives) for pool in group])
    for pool, own in zip(group, np.split(values, ends[:-1]), strict=True):
        pool.judged = own[: len(pool.rows)]
        pool.judged_positives = own[len(pool.rows) :]
