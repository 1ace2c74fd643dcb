"""Losses: functions of scores and labels, registered where they are written, with the paper's equation beside the code.

A list is one query with its passages; the positive stands first (of several: `average_over_positives`). Shorter lists
are padded, and `mask` is True where a passage stands. Every reduction over queries is a *sum*: the caller divides by
the number of queries of the whole batch, so that a batch computed in parts has exactly the loss and gradient of one
computed at once. A loss's keyword-only parameters are its options: `margin` and `temperature` are keys beside its name,
all others keys of `loss_options`.

    @supervision("…")   loss(scores, mask, *, options): by the first passage of each list
    @distillation("…")  loss(student, teacher, mask, *, options): by a teacher's scores
    @regulariser("…")   regulariser(vectors): of all vectors of a batch's side, a scalar
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from tandem.config.losses import distillation, read_options, supervision
from tandem.models.ragged import Ids

SupervisionLoss = Callable[[Tensor, Tensor], Tensor]  # (scores, mask) → a sum over queries
# (student, teacher, mask) → a sum over queries
DistillationLoss = Callable[[Tensor, Tensor, Tensor], Tensor]


def find_supervision_loss(name: str, section: BaseModel) -> SupervisionLoss:
    """Return the loss by the first passage of this name, with the options of its section."""
    loss = supervision[name]
    return partial(loss, **read_options(loss, section))


def average_over_positives(
    loss: SupervisionLoss, scores: Tensor, mask: Tensor, positives: Ids | None
) -> Tensor:
    """(1/k) Σ_i loss(positive i first, then all that is not a positive), summed over the lists; k: a list's positives.

    Every positive is set against the negatives alone: no other positive is its negative.

    Args:
        scores: the positives of each list first, shape (queries, passages).
        mask: True where a passage counts, same shape.
        positives: how many of each list are positives, shape (queries,); None: one each.
    """
    if positives is None:
        return loss(scores, mask)
    total = scores[:0].sum()  # with a gradient, where a process has no list
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
    """Return the loss by a teacher's scores of this name, with the options of its section."""
    loss = distillation[name]
    return partial(loss, **read_options(loss, section))
