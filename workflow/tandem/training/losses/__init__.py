"""Losses: functions of scores and labels, registered where they are written, with the paper's equation near the code.

A list is one query with its passages; its positive comes first (if it has several, see `average_over_positives`).
Shorter lists are padded, and `mask` is False for padding. Every loss is a *sum* over queries: the caller divides by the
number of queries of the whole batch, so that a batch computed in parts has exactly the loss and gradient of one
computed at once. A loss's keyword-only parameters are its options. In a configuration, `margin` and `temperature` are
keys next to the loss's name; all others are keys of `loss_options`.

    @supervision("…")   loss(scores, mask, *, options): learns that the first passage of each list is relevant
    @distillation("…")  loss(student, teacher, mask, *, options): learns from a teacher's scores
    @regulariser("…")   regulariser(vectors): returns a scalar for the vectors of all queries or passages of a batch
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from tandem.config.losses import distillation, read_options, supervision
from tandem.models.ragged import Ids
from tandem.registry import Registry
from tandem.store.job import load

SupervisionLoss = Callable[[Tensor, Tensor], Tensor]  # (scores, mask) → a sum over queries
# (student, teacher, mask) → a sum over queries
DistillationLoss = Callable[[Tensor, Tensor, Tensor], Tensor]


def find_supervision_loss(name: str, section: BaseModel) -> SupervisionLoss:
    """Return the supervision loss of this name, with its options from `section`."""
    return _find_loss(supervision, name, section)


def average_over_positives(
    loss: SupervisionLoss, scores: Tensor, mask: Tensor, positives: Ids | None
) -> Tensor:
    """(1/k) Σ_i loss(positive i, then all negatives), summed over the lists; k is the number of a list's positives.

    Each positive is compared only with the negatives, never with another positive.

    Args:
        scores: the positives of each list first, shape (queries, passages).
        mask: True where a passage counts, same shape.
        positives: how many of each list are positives, shape (queries,); None: one each.
    """
    if positives is None:
        return loss(scores, mask)
    total = scores[:0].sum()  # 0 that has a gradient, as a process may have no list
    for count in np.unique(positives).tolist():
        lists = torch.from_numpy(positives == count).to(scores.device)
        scores_of_lists = scores[lists]
        mask_of_lists = mask[lists]
        for i in range(count):
            alone = torch.cat([scores_of_lists[:, i : i + 1], scores_of_lists[:, count:]], 1)
            alone_mask = torch.cat([mask_of_lists[:, i : i + 1], mask_of_lists[:, count:]], 1)
            total = total + loss(alone, alone_mask) / count
    return total


def find_distillation_loss(name: str, section: BaseModel) -> DistillationLoss:
    """Return the distillation loss of this name, with its options from `section`."""
    return _find_loss(distillation, name, section)


def _find_loss(
    registry: Registry[Callable[..., Tensor]], name: str, section: BaseModel
) -> Callable[..., Tensor]:
    loss = partial(registry[name], **read_options(registry[name], section))
    if registry.plugin(name) is None:
        return loss
    checked: Callable[..., Tensor] = load("extras.plugin_checks:check_results")(
        f"{registry.what} {name}", loss
    )
    return checked
