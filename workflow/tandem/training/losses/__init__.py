"""Losses, one file each: functions of scores and labels, with the paper's equation beside the code.

A list is one query with its passages; the positive stands first. Shorter lists are padded, and `mask` is True where a
passage stands. Every reduction over queries is a *sum*: the caller divides by the number of queries of the whole batch,
so that a batch computed in parts has exactly the loss and gradient of one computed at once. A loss's keyword-only
parameters are its options, under the same name in the configuration.
"""

from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any

from torch import Tensor

from tandem.training.losses.distillation import (
    dynamic_listwise_distillation,
    kl,
    kl_elementwise,
    kl_minmax,
    kl_reverse,
    kl_t2,
    mse,
    reference_listwise_distillation,
)
from tandem.training.losses.listwise import listmle, listwise, pointwise
from tandem.training.losses.pairwise import (
    hinge,
    hinge_distillation,
    lambdarank,
    lambdarank_distillation,
    margin_mse,
    ranknet,
    ranknet_distillation,
)
from tandem.training.losses.regularisers import flops, l1

Supervision = Callable[[Tensor, Tensor], Tensor]  # (scores, mask) → a sum over queries
Distillation = Callable[[Tensor, Tensor, Tensor], Tensor]  # (student, teacher, mask) → a sum over queries
Regulariser = Callable[[Tensor], Tensor]  # all vectors of a batch's side → a scalar

SUPERVISION: dict[str, Supervision] = {
    "listwise": listwise,
    "pointwise": pointwise,
    "hinge": hinge,
    "ranknet": ranknet,
    "lambdarank": lambdarank,
}
DISTILLATIONS: dict[str, Distillation] = {
    "paper": dynamic_listwise_distillation,
    "reference": reference_listwise_distillation,
    "kl": kl,
    "kl_t2": kl_t2,
    "kl_elementwise": kl_elementwise,
    "kl_reverse": kl_reverse,
    "kl_minmax": kl_minmax,
    "margin_mse": margin_mse,
    "mse": mse,
    "hinge": hinge_distillation,
    "ranknet": ranknet_distillation,
    "lambdarank": lambdarank_distillation,
    "listmle": listmle,
}
REGULARISERS: dict[str, Regulariser] = {"flops": flops, "l1": l1}


def supervision(train: dict[str, Any], key: str = "loss") -> Supervision:
    """The loss by the first passage that a model's `train` parameters name under a key, with its options."""
    loss = SUPERVISION[train[key]]
    return partial(loss, **given(loss, train))


def distillation(told: dict[str, Any], key: str = "loss") -> Distillation:
    """The loss by a teacher's scores that parameters name under a key, with its options."""
    loss = DISTILLATIONS[told[key]]
    return partial(loss, **given(loss, told))


def given(loss: Callable[..., Tensor], told: dict[str, Any]) -> dict[str, Any]:
    """A loss's options as they were told; those that were not keep their default."""
    return {name: told[name] for name in options(loss) if name in told}


def options(loss: Callable[..., Tensor]) -> tuple[str, ...]:
    """The names of a loss's options."""
    return tuple(p.name for p in signature(loss).parameters.values() if p.kind is Parameter.KEYWORD_ONLY)
