"""Validations of a training, within it or of its checkpoints: which of them decides, and whether the training helped.

Of one that did not help, its log, its manifest, the tables and the report say so.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch

from tandem.config.losses import OWN_LOSSES
from tandem.config.training import CrossTrain, DualTrain, JointTrain, Train
from tandem.stages.base import Json
from tandem.training.checkpoints import LogRow
from tandem.training.instances import count_visits
from tandem.training.lists import Lists, count_visited
from tandem.training.losses import SupervisionLoss, find_supervision_loss
from tandem.training.validation import MEASURE, ValidationSet

_DEV_ROW = f"dev {MEASURE} ("  # how a validation's row of the log begins; its part follows
_ENOUGH_QUERIES = 50  # to choose a checkpoint by
_DEVIATION = 0.4  # of a measure between 0 and 1 over queries of which many have 0 or 1; a usual one
_NEAR_CHANCE = 0.97  # a loss above this share of chance's has learned next to nothing


@dataclass(frozen=True)
class ValidationPoint:
    """Hold a validation within a training: the value of each part after so many steps."""

    step: int
    values: dict[str, float]

    @property
    def mean(self) -> float:
        """Return the mean over the parts."""
        return fmean(self.values.values())


def log_point(point: ValidationPoint) -> list[LogRow]:
    """Return a validation as rows of the log, which `read_points` reads back."""
    return [(point.step, f"{_DEV_ROW}{part})", value) for part, value in point.values.items()]


def read_points(log: Iterable[LogRow]) -> list[ValidationPoint]:
    """Return the validations in a log, in its order: the first is of the start."""
    values: dict[int, dict[str, float]] = {}
    for step, name, value in log:
        if name.startswith(_DEV_ROW):
            values.setdefault(step, {})[name[len(_DEV_ROW) : -1]] = value
    return [ValidationPoint(step, parts) for step, parts in values.items()]


def choose_point(history: Sequence[ValidationPoint]) -> ValidationPoint:
    """Return the best validation by the mean over the parts, the first of equals.

    Those at which one part of a joint model is worse than at the start do not count, so that no part loses.
    """
    start = history[0].values
    harmless = []
    for point in history:
        if all(value >= start[part] for part, value in point.values.items()):
            harmless.append(point)
    return max(harmless, key=lambda point: point.mean)  # of equals, max takes the first


def find_chosen(train: Train, history: Sequence[ValidationPoint]) -> ValidationPoint | None:
    """Return the validation whose weights become the model; None where the last ones do."""
    if train.choose != "dev" or not history:
        return None
    return choose_point(history)


def is_exhausted(train: Train, history: Sequence[ValidationPoint]) -> bool:
    """Return whether the last `patience` validations were no better than the best before them."""
    chosen = find_chosen(train, history)
    if chosen is None or train.patience is None:
        return False
    return sum(point.step > chosen.step for point in history) >= train.patience


def describe_outcome(
    train: DualTrain | CrossTrain | JointTrain,
    log: Sequence[LogRow],
    lists: Lists,
    validation: ValidationSet | None,
) -> tuple[Json, list[str]]:
    """Return the facts of a finished training's effect (`at_chance`, its validation), and warnings."""
    history = read_points(log)
    at_chance = warn_of_chance(train, log, lists)
    facts: Json = {"at_chance": bool(at_chance)}
    warnings = [at_chance]
    if validation is not None and history:
        chosen = find_chosen(train, history) or history[-1]
        warnings.append(warn_of_few_queries(train.choose, len(validation.batch.queries)))
        warnings.append(warn_of_no_gain(history, train.choose))
        warnings.append(warn_of_loss_to_lists(chosen, validation.as_listed))
        facts |= {"validated_on": validation.origin, "chosen_step": chosen.step}
    return facts, [line for line in warnings if line]


def warn_of_few_queries(by: str, queries: int) -> str:
    """Return a warning if checkpoints are chosen by so few queries that chance decides; else ""."""
    if by != "dev" or queries >= _ENOUGH_QUERIES:
        return ""
    chance = _DEVIATION / math.sqrt(queries)
    return (
        f"its checkpoint is chosen by {queries} queries alone: by chance their mean {MEASURE} is off by "
        f"{chance:.2f} or more in one case of three; more dev queries or train.choose: last would mend it"
    )


def warn_of_no_gain(
    history: Sequence[ValidationPoint], by: str, measure: str = f"dev {MEASURE}"
) -> str:
    """Return a warning if the start is kept, or the end is worse than the start; else "".

    Args:
        history: validations, the first of them of the start; lower is better where values are negative.
        by: `train.choose`.
    """
    if len(history) < 2:
        return ""
    start = history[0]
    last = history[-1]
    figures = f"{measure} {_format_values(start)} at the start, {_format_values(last)} after {last.step:,} steps"
    if by == "dev" and choose_point(history).step == start.step:
        return f"training did not help, its start is kept: {figures}"
    any_is_worse = any(last.values[part] < value for part, value in start.values.items())
    if by == "last" and any_is_worse:
        return f"ends worse than its start (train.choose: dev keeps the better): {figures}"
    return ""


def _format_values(point: ValidationPoint) -> str:
    """Return `0.3721`, or `dual 0.3721, cross 0.4012` of several parts."""
    if len(point.values) == 1:
        return f"{abs(point.mean):.4f}"
    return ", ".join(f"{part} {value:.4f}" for part, value in point.values.items())


def warn_of_loss_to_lists(chosen: ValidationPoint, as_listed: float | None) -> str:
    """Return a warning if a cross-encoder ranks the dev lists worse than their first stage; else ""."""
    value = chosen.values.get("cross")
    if value is None or as_listed is None or value >= as_listed:
        return ""
    return f"ranks the dev lists worse than their first stage: {MEASURE} {value:.4f} instead of {as_listed:.4f}"


def warn_of_chance(
    train: DualTrain | CrossTrain | JointTrain, log: Sequence[LogRow], lists: Lists
) -> str:
    """Return a warning if the supervised loss of the last tenth of the steps is about that of equal scores; else ""."""
    name, weight = _find_supervision(train)
    # Own losses are none of scores, and co-training chooses lists by their loss.
    if not weight or name in OWN_LOSSES or getattr(train, "co_training", None):
        return ""
    # The loss stands under its own name only where it is one of several terms.
    losses = [value for _, row, value in log if row == "sup"]
    if not losses:
        losses = [value for _, row, value in log if row == "loss"]
    if not losses:
        return ""
    last_tenth = losses[-max(1, len(losses) // 10) :]
    value = fmean(last_tenth) / weight
    expected = compute_chance(find_supervision_loss(name, train), list_sizes(train, lists))
    if value < _NEAR_CHANCE * expected:
        return ""
    figures = f"{name} loss {value:.3f} in the last tenth of its steps, {expected:.3f} if all scores are equal"
    return f"stays at chance: {figures}"


def _find_supervision(train: DualTrain | CrossTrain | JointTrain) -> tuple[str, float]:
    """Return the name of the loss on the labels, and how often it counts in what the log calls the loss."""
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
    constants = torch.linspace(-10, 10, 401).tolist()  # scores that tell no passage from another
    least = []
    for length in lengths.tolist():
        mask = torch.ones(1, length, dtype=torch.bool)
        losses = [float(loss(torch.full((1, length), constant), mask)) for constant in constants]
        least.append(min(losses))
    return float(np.average(least, weights=counts))


def list_sizes(train: DualTrain | CrossTrain | JointTrain, lists: Lists) -> list[int]:
    """Return how many passages each list's loss is over: its own and, in batch, those that others add on average.

    Of several positives each has a loss of its own, among the negatives.
    """
    # A single pair is one of its list's: by chance it is known with the list's share of positives.
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
