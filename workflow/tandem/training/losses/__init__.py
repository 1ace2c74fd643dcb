"""Losses: functions of scores and labels, registered where they are written, with the paper's equation beside the code.

A list is one query with its passages; the positive stands first. Shorter lists are padded, and `mask` is True where a
passage stands. Every reduction over queries is a *sum*: the caller divides by the number of queries of the whole batch,
so that a batch computed in parts has exactly the loss and gradient of one computed at once. A loss's keyword-only
parameters are its options, under the same name in the configuration.

    @supervision("…")   loss(scores, mask, *, options): by the first passage of each list
    @distillation("…")  loss(student, teacher, mask, *, options): by a teacher's scores
    @regulariser("…")   regulariser(vectors): of all vectors of a batch's side, a scalar
"""

from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature

from torch import Tensor

from tandem.config import training as losses
from tandem.registry import Registry

Supervision = Callable[[Tensor, Tensor], Tensor]  # (scores, mask) → a sum over queries
Distillation = Callable[[Tensor, Tensor, Tensor], Tensor]  # (student, teacher, mask) → a sum over queries

supervision: Registry[Callable[..., Tensor]] = losses.supervision
distillation: Registry[Callable[..., Tensor]] = losses.distillation
regulariser: Registry[Callable[..., Tensor]] = losses.regulariser


def supervision_loss(name: str, options: object) -> Supervision:
    """The loss by the first passage of this name; its options are attributes of `options`."""
    return _with_options(supervision[name], options)


def distillation_loss(name: str, options: object) -> Distillation:
    """The loss by a teacher's scores of this name; its options are attributes of `options`."""
    return _with_options(distillation[name], options)


def _with_options(loss: Callable[..., Tensor], options: object) -> Callable[..., Tensor]:
    """A loss with the options that `options` has; the others keep their defaults."""
    names = [p.name for p in signature(loss).parameters.values() if p.kind is Parameter.KEYWORD_ONLY]
    return partial(loss, **{name: getattr(options, name) for name in names if hasattr(options, name)})
