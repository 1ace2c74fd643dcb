"""Call what packages and plugins add to trainings, and refuse additions that would fail elsewhere, or silently."""

from collections.abc import Callable, Sequence
from inspect import isfunction
from typing import Any

import numpy as np
import torch

from tandem.config.training import FITS, OPTIMIZERS, Train
from tandem.errors import UserError, shortened
from tandem.extras.optimizer_state import find_unsaved
from tandem.extras.plugin_results import locate_function
from tandem.models.ragged import Ids
from tandem.stages.base import Entry, Json
from tandem.stages.training import OUTCOMES, WATCHES
from tandem.store.job import load

_WATCH = ("label", "prepare", "begin", "follow", "select", "describe_choice", "describe_outcome")


def start_optimizer(name: str, groups: list[Json], lr: float) -> torch.optim.Optimizer:
    """Return the optimizer of a name over groups of parameters.

    Raises:
        UserError: the result is not an optimizer, or not over these groups: some weights would not learn, or not at
            their own rate. After the first step: it remembers something that checkpoints do not store.
    """
    shares = _list_shares(groups)
    start = load(OPTIMIZERS[name])
    optimizer = start(groups, lr)
    where = locate_function(start)
    if not isinstance(optimizer, torch.optim.Optimizer):
        problem = f"returned {shortened(repr(optimizer))}"
        raise UserError(f"{where} {problem}; a torch.optim.Optimizer is needed")
    if _list_shares(optimizer.param_groups) != shares:
        problem = "gave the optimizer other parameters than it was called with, or no `share` of each group"
        raise UserError(f"{where} {problem}; give it `groups` as they are")

    def check_state(stepped: torch.optim.Optimizer, *_: Any) -> None:
        """Refuse the optimizer after a step, and not as late as the first checkpoint."""
        if problem := find_unsaved(stepped):
            raise UserError(f"{where}: its optimizer {problem}")

    is_own = start.__module__.startswith("tandem.")
    if not is_own:  # Tandem's own need no check: they remember nothing else
        optimizer.register_step_post_hook(check_state)
    return optimizer


def _list_shares(groups: list[Json]) -> set[tuple[int, float | None]]:
    """Return each parameter's identity, and its group's share of the learning rate."""
    return {(id(weights), group.get("share")) for group in groups for weights in group["params"]}


def check_order(order: Any, count: int, arrange: Callable[..., Any]) -> Ids:
    """Return the order of an epoch that was arranged; a `UserError` unless it has each of `count` instances once.

    Otherwise some instances would be learned twice, or never.
    """
    result = np.asarray(order)
    if result.shape != (count,) or not np.array_equal(np.sort(result), np.arange(count)):
        where = locate_function(arrange if isfunction(arrange) else type(arrange).__call__)
        problem = f"ordered the instances of an epoch as {shortened(repr(order))}"
        raise UserError(f"{where} {problem}; each from 0 to {count - 1:,} is needed once")
    return result


def choose_watch(key: str, *values: Any) -> Any:
    """Return the one watch that packages have for a training, or None; `values` are those of `WATCHES`.

    Raises:
        UserError: several would watch it, or it is not a watch.
    """
    watches = {name: watch for name, start in WATCHES.items() if (watch := load(start)(*values))}
    if len(watches) > 1:
        problem = f"{' and '.join(watches)} would each watch this training"
        raise UserError(
            f"train {key}: {problem}; set train.choose to last and train.validate_every to null, or leave out a plugin"
        )
    for name, watch in watches.items():
        # `lists` and `positives` may be set only by its __init__
        absent = [word for word in ("lists", "positives", *_WATCH) if not hasattr(watch, word)]
        if absent:
            problem = f"returned {shortened(repr(watch))}, which has no {absent[0]}"
            raise UserError(
                f"{locate_function(load(WATCHES[name]))} {problem}; see Watch in tandem.training.loop"
            )
    return next(iter(watches.values()), None)


def apply_fits(train: Train, *values: Any) -> Train:
    """Return a training's parameters with what follows from its data; `values` are those of `FITS` except `train`."""
    for fit in FITS.values():
        result = load(fit)(*values, train)
        if type(result) is not type(train):
            problem = f"returned {shortened(repr(result))}"
            needed = f"a {type(train).__name__}, as it was called with, is needed"
            raise UserError(f"{locate_function(load(fit))} {problem}; {needed}")
        train = result
    return train


def list_outcomes(*values: Any) -> list[tuple[Json, list[str]]]:
    """Return the facts and warnings of each of `OUTCOMES`, which are called with these values."""
    return [_describe(describe, values) for describe in OUTCOMES.values()]


def _describe(describe: Entry, values: Sequence[Any]) -> tuple[Json, list[str]]:
    function: Callable[..., Any] = load(describe)
    result = function(*values)
    match result:
        case (dict(), list() | tuple() as lines) if all(isinstance(line, str) for line in lines):
            return result[0], list(lines)
    problem = f"returned {shortened(repr(result))}; (facts, warnings) are needed, a dict and texts"
    raise UserError(f"{locate_function(function)} {problem}")
