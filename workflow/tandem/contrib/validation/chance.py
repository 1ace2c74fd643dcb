"""Check whether a training learned anything, by its loss compared with that of equal scores."""

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np
import torch

from tandem.config.losses import OWN_LOSSES
from tandem.config.training import OWN_OBJECTIVES, CrossTrain, DualTrain, JointTrain
from tandem.extras.training_operations import count_visited
from tandem.stages.base import Json
from tandem.stages.training import ModelParams
from tandem.training.checkpoints import LogRow
from tandem.training.instances import count_visits
from tandem.training.lists import Lists
from tandem.training.losses import SupervisionLoss, find_supervision_loss

_NEAR_CHANCE = 0.97  # a loss above this share of chance's has learned next to nothing
# Difference of scores that are as good as equal, and the share by which it may change a loss that reads no ranks.
_LEAD = 1e-9
_SAME_LOSS = 1e-6


def describe_chance(
    params: ModelParams,
    train: DualTrain | CrossTrain | JointTrain,
    log: Sequence[LogRow],
    lists: Lists,
) -> tuple[Json, list[str]]:
    """Return the fact `at_chance`, which is looked up when a model judges candidates, and a warning if it is true."""
    key = "compares" if params.compares else getattr(train, "own_objective", None)
    warning = warn_of_chance(train, log, lists, OWN_OBJECTIVES[key].chance if key else None)
    return {"at_chance": bool(warning)}, [warning] if warning else []


def warn_of_chance(
    train: DualTrain | CrossTrain | JointTrain,
    log: Sequence[LogRow],
    lists: Lists,
    expected: float | None = None,
) -> str:
    """Return a warning if the supervised loss of the last tenth of the steps is about that of equal scores; else "".

    The loss of equal scores is `expected`, or follows from the loss and the lists.
    """
    name, weight = _find_supervision(train)
    # Own losses are not computed from scores, and co-training chooses lists by their loss.
    if not weight or name in OWN_LOSSES or getattr(train, "co_training", None):
        return ""
    # The loss is logged under its own name only if it is one of several terms.
    losses = [value for _, row, value in log if row == "sup"]
    if not losses:
        losses = [value for _, row, value in log if row == "loss"]
    if not losses:
        return ""
    last_tenth = losses[-max(1, len(losses) // 10) :]
    value = fmean(last_tenth) / weight
    if expected is None:
        expected = compute_chance(find_supervision_loss(name, train), list_sizes(train, lists))
    if value < _NEAR_CHANCE * expected:
        return ""
    figures = f"{name} loss {value:.3f} in the last tenth of its steps, {expected:.3f} if all scores are equal"
    return f"stays at chance: {figures}"


def _find_supervision(train: DualTrain | CrossTrain | JointTrain) -> tuple[str, float]:
    """Return the name of the loss on the labels, and how often it counts in the logged loss."""
    if isinstance(train, JointTrain):
        return train.supervision, float(train.teacher == "dynamic")
    weight = train.distil.supervision if train.distil else 1.0
    if isinstance(train, DualTrain):
        weight *= 1 - train.passage_centric
        weight *= 1 + len(train.matryoshka)  # a loss of whole vectors, and one of each cut
    return train.loss, weight


def compute_chance(loss: SupervisionLoss, sizes: Sequence[int]) -> float:
    """Return the least mean loss of lists of these sizes if all scores are the same: ln n for `listwise`.

    For `pointwise` that is the entropy of one positive among n, which a bias alone attains.
    """
    lengths, counts = np.unique(sizes, return_counts=True)
    least = [_compute_chance_of_list(loss, length) for length in lengths.tolist()]
    return float(np.average(least, weights=counts))


def _compute_chance_of_list(loss: SupervisionLoss, length: int) -> float:
    """Return the least loss of a list of equal scores.

    If a loss reads ranks, it is the mean over all ranks of the positive, because equal scores determine none of them.
    """
    mask = torch.ones(1, length, dtype=torch.bool)

    def compute(constant: float, rank: int = 0) -> float:
        """Return the loss if so many negatives are ahead of the positive."""
        scores = torch.full((1, length), constant, dtype=torch.float64)
        scores[:, 1 : 1 + rank] += _LEAD
        return float(loss(scores, mask))

    constants = torch.linspace(-10, 10, 401).tolist()  # scores that all passages have
    best = min(constants, key=compute)
    if math.isclose(compute(best), compute(best, length - 1), rel_tol=_SAME_LOSS):
        return compute(best)
    return fmean(compute(best, rank) for rank in range(length))


def list_sizes(train: DualTrain | CrossTrain | JointTrain, lists: Lists) -> list[int]:
    """Return how many passages each list's loss has: its own and, in batch, those that other lists add on average.

    If there are several positives, each has a loss of its own, with the negatives.
    """
    retrieved = getattr(train, "live_negatives", None)
    if retrieved:  # in place of the lists' own
        return [1 + retrieved] * len(lists)
    # A single pair is one of its list's: at chance its label is predicted by the list's share of positives.
    size = train.visit_size if isinstance(train, DualTrain) else train.list_size
    positives, negatives = count_visited(lists, size, train.positives)
    batch = min(train.queries_per_batch, len(lists))
    added_by_each = 1.0  # each positive is added once
    if isinstance(train, DualTrain):
        # A batch may have more visits than there are lists, and all of their passages count.
        steps = 1 if train.budget_minutes else train.steps
        visits = count_visits(len(lists), train.queries_per_batch, train.epochs, steps)
        batch = min(train.queries_per_batch, visits)
        added_by_each = float((positives + negatives).mean())
    others = (batch - 1) * float(train.in_batch)
    sizes: list[int] = np.rint(1 + negatives + others * added_by_each).astype(int).tolist()
    return sizes
