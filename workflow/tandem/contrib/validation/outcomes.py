"""Warn of a training whose checkpoint is chosen by too few queries, or which ends no better than it starts."""

import math
from collections.abc import Sequence

from tandem.extras.validation.validation_points import MEASURE, ValidationPoint, choose_point

_ENOUGH_QUERIES = 50  # to choose a checkpoint by
_DEVIATION = 0.4  # usual over queries for a measure between 0 and 1, if many queries have 0 or 1


def warn_of_few_queries(by: str, queries: int, measure: str = MEASURE) -> str:
    """Return a warning if checkpoints are chosen by so few queries that chance decides; else ""."""
    if by != "dev" or queries >= _ENOUGH_QUERIES:
        return ""
    chance = _DEVIATION / math.sqrt(queries)
    counted = "1 query" if queries == 1 else f"{queries} queries"
    return (
        f"its checkpoint is chosen by {counted} alone: by chance the mean {measure} is off by "
        f"{chance:.2f} or more in one case of three; more dev queries or train.choose: last would mend it"
    )


def warn_of_no_gain(
    history: Sequence[ValidationPoint],
    by: str,
    measure: str = f"dev {MEASURE}",
    is_segment: bool = False,
) -> str:
    """Return a warning if the start is kept, or the end is worse than the start; else "".

    Args:
        history: validations, the first of them of the start; values are negative if lower is better.
        by: `train.choose`.
        is_segment: whether this is a part of a training, whose checkpoint another stage chooses.
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
        hint = "" if is_segment else " (train.choose: dev keeps the better)"
        return f"ends worse than its start{hint}: {figures}"
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
