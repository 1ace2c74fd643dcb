"""Validations of a training, within it or of its checkpoints: which of them decides, and whether the training helped.

Of one that did not help, its log, its manifest, the tables and the report say so.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch

from tandem.cluster.progress import warn
from tandem.config.losses import TERM_RECALL
from tandem.config.training import CrossTrain, DualTrain, JointTrain, Train
from tandem.errors import UserError
from tandem.stages.base import Json
from tandem.stages.training import ModelParams
from tandem.store.files import link, write_json
from tandem.store.job import Job, writing
from tandem.training.checkpoints import LogRow
from tandem.training.instances import count_visits
from tandem.training.lists import Lists, count_visited
from tandem.training.losses import Supervision, supervision_loss
from tandem.training.selection import best, validated, worth
from tandem.training.validation import MEASURE, ValidationSet

DEV = f"dev {MEASURE} ("  # how a validation's row of the log begins; its part follows
NEAR_CHANCE = 0.97  # a loss above this share of chance's has learned next to nothing
FACTS = ("lists", "steps", "planned_steps", "sizes", "precision", "device")  # a model's are those of its checkpoint


@dataclass(frozen=True)
class Point:
    """A validation within a training: the value of each part after so many steps."""

    step: int
    values: dict[str, float]

    @property
    def mean(self) -> float:
        """The mean over the parts."""
        return fmean(self.values.values())


def log_rows(point: Point) -> list[LogRow]:
    """A validation as rows of the log, which `points` reads back."""
    return [(point.step, f"{DEV}{part})", value) for part, value in point.values.items()]


def points(log: Iterable[LogRow]) -> list[Point]:
    """The validations in a log, in its order: the first is of the start."""
    values: dict[int, dict[str, float]] = {}
    for step, name, value in log:
        if name.startswith(DEV):
            values.setdefault(step, {})[name[len(DEV) : -1]] = value
    return [Point(step, parts) for step, parts in values.items()]


def choose(history: Sequence[Point]) -> Point:
    """The best validation by the mean over the parts, the first of equals.

    Those at which one part of a joint model is worse than at the start do not count, so that no part loses.
    """
    start = history[0].values
    harmless = [point for point in history if all(value >= start[part] for part, value in point.values.items())]
    return max(harmless, key=lambda point: point.mean)  # of equals, max takes the first


def chosen_of(train: Train, history: Sequence[Point]) -> Point | None:
    """The validation whose weights become the model; None where the last ones do."""
    return choose(history) if train.choose == "dev" and history else None


def is_exhausted(train: Train, history: Sequence[Point]) -> bool:
    """Whether the last `patience` validations were no better than the best before them."""
    chosen = chosen_of(train, history)
    if chosen is None or train.patience is None:
        return False
    return sum(point.step > chosen.step for point in history) >= train.patience


def outcome(
    train: DualTrain | CrossTrain | JointTrain, log: Sequence[LogRow], lists: Lists, validation: ValidationSet | None
) -> tuple[Json, list[str]]:
    """The facts of a finished training's effect (`at_chance`, its validation) for the manifest, and warnings."""
    history, at_chance = points(log), chance_warning(train, log, lists)
    facts: Json = {"at_chance": bool(at_chance)}
    warnings = [at_chance]
    if validation is not None and history:
        chosen = chosen_of(train, history) or history[-1]
        warnings += [no_gain(history, train.choose), below_lists(chosen, validation.as_listed)]
        facts |= {"validated_on": validation.origin, "chosen_step": chosen.step}
    return facts, [line for line in warnings if line]


def no_gain(history: Sequence[Point], by: str, measure: str = f"dev {MEASURE}") -> str:
    """A warning if the start is kept, or the end is worse than the start; else empty.

    Args:
        history: validations, the first of them of the start; lower is better where values are negative.
        by: `train.choose`.
    """
    if len(history) < 2:
        return ""
    start, last = history[0], history[-1]
    figures = f"{measure} {_values(start)} at the start, {_values(last)} after {last.step:,} steps"
    if by == "dev" and choose(history).step == start.step:
        return f"training did not help, its start is kept: {figures}"
    if by == "last" and any(last.values[part] < value for part, value in start.values.items()):
        return f"ends worse than its start (train.choose: dev keeps the better): {figures}"
    return ""


def _values(point: Point) -> str:
    """`0.3721`, or `dual 0.3721, cross 0.4012` of several parts."""
    if len(point.values) == 1:
        return f"{abs(point.mean):.4f}"
    return ", ".join(f"{part} {value:.4f}" for part, value in point.values.items())


def below_lists(chosen: Point, as_listed: float | None) -> str:
    """A warning if a cross-encoder ranks the dev lists worse than their first stage; else empty."""
    value = chosen.values.get("cross")
    if value is None or as_listed is None or value >= as_listed:
        return ""
    return f"ranks the dev lists worse than their first stage: {MEASURE} {value:.4f} instead of {as_listed:.4f}"


def chance_warning(train: DualTrain | CrossTrain | JointTrain, log: Sequence[LogRow], lists: Lists) -> str:
    """A warning if the supervised loss of the last tenth of the steps is about that of equal scores; else empty."""
    if isinstance(train, JointTrain):
        name, weight = train.supervision, float(train.teacher == "dynamic")
    else:
        name, weight = train.loss, train.distil.supervision if train.distil else 1.0
    if isinstance(train, DualTrain):
        weight *= 1 - train.passage_centric
        weight *= 1 + len(train.matryoshka)  # a loss of whole vectors, and one of each cut
    # The loss stands under its own name only where it is one of several terms.
    losses = [value for _, row, value in log if row == "sup"] or [value for _, row, value in log if row == "loss"]
    # `term_recall` is no loss of scores, and co-training chooses lists by their loss
    if not weight or not losses or name == TERM_RECALL or getattr(train, "co_training", None):
        return ""
    value = fmean(losses[-max(1, len(losses) // 10) :]) / weight
    expected = chance(supervision_loss(name, train), list_sizes(train, lists))
    if value < NEAR_CHANCE * expected:
        return ""
    figures = f"{name} loss {value:.3f} in the last tenth of its steps, {expected:.3f} if all scores are equal"
    return f"stays at chance: {figures}"


def chance(loss: Supervision, sizes: Sequence[int]) -> float:
    """The least mean loss of lists of these sizes if all scores are the same: ln n for `listwise` and lists of n.

    For `pointwise` that is the entropy of one positive among n, which a bias alone attains.
    """
    lengths, counts = np.unique(sizes, return_counts=True)
    constants, least = torch.linspace(-10, 10, 401).tolist(), []  # scores that tell no passage from another
    for length in lengths.tolist():
        mask = torch.ones(1, length, dtype=torch.bool)
        least.append(min(float(loss(torch.full((1, length), constant), mask)) for constant in constants))
    return float(np.average(least, weights=counts))


def list_sizes(train: DualTrain | CrossTrain | JointTrain, lists: Lists) -> list[int]:
    """How many passages each list's loss is over: its own and, in batch, those that others add on average.

    Of several positives each has a loss of its own, among the negatives.
    """
    # A single pair is one of its list's: by chance it is known with the list's share of positives.
    size = train.visit_size if isinstance(train, DualTrain) else train.list_size
    positives, negatives = count_visited(lists, size, train.positives)
    batch, each = min(train.queries_per_batch, len(lists)), 1.0  # each positive is added once
    if isinstance(train, DualTrain):  # a batch may have more visits than there are lists: all of their passages count
        steps = 1 if train.budget_minutes else train.steps
        batch = min(train.queries_per_batch, count_visits(len(lists), train.queries_per_batch, train.epochs, steps))
        each = float((positives + negatives).mean())
    others = (batch - 1) * float(train.in_batch)
    sizes: list[int] = np.rint(1 + negatives + others * each).astype(int).tolist()
    return sizes


def take_over(job: Job[ModelParams]) -> None:
    """Turn one of the inputs `checkpoint.<n>` into the model: the last, or by `validation.<n>` the best.

    Its files are hard links to the checkpoint's where the file system has them; the log is that of the whole training.
    """
    checkpoints, validations = job.many("checkpoint"), job.many("validation")
    if validations and len(validations) != len(checkpoints):
        counts = f"{len(checkpoints)} checkpoints, but {len(validations)} validations"
        raise UserError(f"model: {counts}; one each is needed")
    steps = [int(checkpoint.manifest.facts["steps"]) for checkpoint in checkpoints]
    worths = [worth(validation) for validation in validations]
    history = [Point(step, {"": value}) for step, value in zip(steps, worths, strict=False)]
    at = best(worths) if worths else len(checkpoints) - 1
    selected, last = checkpoints[at], checkpoints[-1]
    with writing(job) as draft:
        for name in selected.manifest.files:
            link(selected.path(name) if name != "log.parquet" else last.path(name), draft.path(name))
        model = json.loads(selected.path("model.json").read_text(encoding="utf-8"))
        measure, value = validated(validations[at]) if validations else ("", 0.0)
        draft.path("model.json").unlink()
        chosen = [value, steps[at]] if validations else None
        write_json(draft.path("model.json"), model | {"best": chosen, "checkpoint": selected.key})
        facts = selected.manifest.facts
        draft.facts |= {name: facts[name] for name in FACTS if name in facts} | {"checkpoint": selected.key}
        draft.facts["at_chance"] = last.manifest.facts.get("at_chance", False)
        if line := no_gain(history, "dev", f"dev {measure}"):
            warn(job, draft, line)
