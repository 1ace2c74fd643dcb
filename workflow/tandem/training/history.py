"""Validations within a training, as its log has them, and which of them decides."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from tandem.config.training import Train
from tandem.training.checkpoints import LogRow
from tandem.training.validation import MEASURE

DEV = f"dev {MEASURE} ("  # how a validation's row of the log begins; its part follows


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
