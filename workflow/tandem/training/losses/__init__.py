"""Losses: functions of scores and labels, registered where they are written, with the paper's equation beside the code.

A list is one query with its passages; the positive stands first. Shorter lists are padded, and `mask` is True where a
passage stands. Every reduction over queries is a *sum*: the caller divides by the number of queries of the whole batch,
so that a batch computed in parts has exactly the loss and gradient of one computed at once. A loss's keyword-only
parameters are its options, under the same name in the configuration; `config.losses` reads names and options from the
sources, so that planning needs no torch.
"""

from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any, TypeVar

from torch import Tensor

from tandem.errors import UserError

Supervision = Callable[[Tensor, Tensor], Tensor]  # (scores, mask) → a sum over queries
Distillation = Callable[[Tensor, Tensor, Tensor], Tensor]  # (student, teacher, mask) → a sum over queries
Regulariser = Callable[[Tensor], Tensor]  # all vectors of a batch's side → a scalar
F = TypeVar("F", bound=Callable[..., Tensor])

SUPERVISION: dict[str, Supervision] = {}
DISTILLATIONS: dict[str, Distillation] = {}
REGULARISERS: dict[str, Regulariser] = {}


def supervision(name: str) -> Callable[[F], F]:
    """Register a loss by the first passage of each list: `loss(scores, mask, *, options)`."""
    return _register(SUPERVISION, name)


def distillation(name: str) -> Callable[[F], F]:
    """Register a loss by a teacher's scores: `loss(student, teacher, mask, *, options)`."""
    return _register(DISTILLATIONS, name)


def regulariser(name: str) -> Callable[[F], F]:
    """Register a regulariser of one side's vectors: `regulariser(vectors)`."""
    return _register(REGULARISERS, name)


def _register(registry: dict[str, Any], name: str) -> Callable[[F], F]:
    def add(loss: F) -> F:
        if name in registry:
            raise UserError(f"loss {name} of {loss.__module__} has the name of one of {registry[name].__module__}")
        registry[name] = loss
        return loss

    return add


def supervision_loss(name: str, options: object) -> Supervision:
    """The loss by the first passage of this name; its options are attributes of `options`."""
    return _with_options(SUPERVISION[name], options)


def distillation_loss(name: str, options: object) -> Distillation:
    """The loss by a teacher's scores of this name; its options are attributes of `options`."""
    return _with_options(DISTILLATIONS[name], options)


def _with_options(loss: Callable[..., Tensor], options: object) -> Callable[..., Tensor]:
    """A loss with the options that `options` has; the others keep their defaults."""
    return partial(loss, **{name: getattr(options, name) for name in option_names(loss) if hasattr(options, name)})


def option_names(loss: Callable[..., Tensor]) -> tuple[str, ...]:
    """The names of a loss's options."""
    return tuple(p.name for p in signature(loss).parameters.values() if p.kind is Parameter.KEYWORD_ONLY)


from tandem.training.losses import divergence, listwise, pairwise, regularisers  # noqa: E402, F401  # they register
