"""The objectives, one file each: what a batch's loss is and how its gradient reaches the models."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from tandem.models.tokens import Tokens
from tandem.training.forward import Seeds
from tandem.training.lists import Batch
from tandem.training.losses.listwise import listwise
from tandem.training.losses.pointwise import pointwise

SUPERVISION: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"listwise": listwise, "pointwise": pointwise}


class Objective(Protocol):
    """A loss over batches, and the models it trains by part (`dual`, `cross`)."""

    models: nn.ModuleDict
    tokens: Tokens

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """Add the batch's gradient to the weights; returns the loss and its parts, averaged over its queries."""

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """Scores of the lists by each model part, without gradient, shape (queries, list)."""


def mask_of(batch: Batch, like: Tensor) -> Tensor:
    """The batch's mask as a tensor on the scores' device."""
    return torch.from_numpy(batch.mask).to(like.device)
