"""Losses, one file each: functions of scores and labels, with the paper's equation beside the code.

A list is one query with its passages; the positive stands first. Shorter lists are padded, and `mask` is True where a
passage stands. Every reduction over queries is a *sum*: the caller divides by the number of queries of the whole batch,
so that a batch computed in parts has exactly the loss and gradient of one computed at once.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tandem.training.losses.distillation import dynamic_listwise_distillation, reference_listwise_distillation
from tandem.training.losses.listwise import listwise
from tandem.training.losses.pointwise import pointwise

Supervision = Callable[[Tensor, Tensor], Tensor]  # (scores, mask) → a sum over queries
Distillation = Callable[[Tensor, Tensor, Tensor], Tensor]  # (student, teacher, mask) → a sum over queries

SUPERVISION: dict[str, Supervision] = {"listwise": listwise, "pointwise": pointwise}
DISTILLATIONS: dict[str, Distillation] = {
    "paper": dynamic_listwise_distillation,
    "reference": reference_listwise_distillation,
}


def supervision(train: dict[str, Any], key: str = "loss") -> Supervision:
    """The loss that a model's `train` parameters name under a key."""
    return SUPERVISION[train[key]]
