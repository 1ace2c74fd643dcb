"""The objectives, one file each: what a batch's loss is and how its gradient reaches the models."""

from typing import Protocol

import torch
from torch import Tensor, nn

from tandem.models.tokens import Tokens
from tandem.training.forward import Seeds
from tandem.training.lists import Batch


class Objective(Protocol):
    """A loss over batches, and the models it trains by part (`dual`, `cross`).

    Where several processes train (`World`), each is given the whole batch, computes its share of the queries, and the
    loop sums gradients and told values over the processes: both are divided by the whole batch's number of queries.
    """

    models: nn.ModuleDict
    tokens: Tokens

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """Add the gradient of this process' share of the batch to the weights.

        Returns:
            `loss` and its parts, over the batch's number of queries; of all shares the same names in the same order.
        """

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """Scores of the lists by each model part, without gradient, shape (queries, list)."""


def mask_of(batch: Batch, like: Tensor) -> Tensor:
    """The batch's mask as a tensor on the scores' device."""
    return torch.from_numpy(batch.mask).to(like.device)


def backward(terms: dict[str, Tensor], queries: int) -> dict[str, float]:
    """Carry the gradient of a loss of several terms into whatever made them.

    Args:
        terms: summed over the lists at hand.
        queries: size of the whole batch, which the loss is an average over.
    Returns:
        `loss`, and beside it each term where there are several.
    """
    parts = {name: term / queries for name, term in terms.items()}
    loss = torch.stack(list(parts.values())).sum() if len(parts) > 1 else next(iter(parts.values()))
    loss.backward()
    named = {"loss": loss} | (parts if len(parts) > 1 else {})
    # Read at once: each value that is read makes a GPU wait.
    return dict(zip(named, torch.stack(list(named.values())).tolist(), strict=True))


def add(told: dict[str, float], more: dict[str, float]) -> None:
    """Add values up by name."""
    for name, value in more.items():
        told[name] = told.get(name, 0.0) + value
