"""The validations in a training's log, and which of them decides."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from tandem.config.training import Train
from tandem.training.checkpoints import LogRow

NDCG_CUT = 10
MEASURE = f"nDCG@{NDCG_CUT}"
_DEV_ROW = f"dev {MEASURE} ("  # beginning of a validation's row in the log; the part's name follows


@dataclass(frozen=True)
class ValidationPoint:
    """A validation within a training: the value of each part after a number of steps."""

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
    """Return the validations in a log, in its order; the first is that of the start."""
    values: dict[int, dict[str, float]] = {}
    for step, name, value in log:
        if name.startswith(_DEV_ROW):
            values.setdefault(step, {})[name[len(_DEV_ROW) : -1]] = value
    return [ValidationPoint(step, parts) for step, parts in values.items()]


def choose_point(history: Sequence[ValidationPoint]) -> ValidationPoint:
    """Return the best validation by the mean over the parts, the first of equal ones.

    Validations at which one part of a joint model is worse than at the start do not count, so that no part loses.
    """
    start = history[0].values
    harmless = []
    for point in history:
        if all(value >= start[part] for part, value in point.values.items()):
            harmless.append(point)
    return max(harmless, key=lambda point: point.mean)  # max takes the first of equal ones


def find_chosen(train: Train, history: Sequence[ValidationPoint]) -> ValidationPoint | None:
    """Return the validation whose weights become the model; None if the final weights do."""
    if train.choose != "dev" or not history:
        return None
    return choose_point(history)
