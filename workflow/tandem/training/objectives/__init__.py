"""Objectives: what a batch's loss is and how its gradient reaches the models."""

from typing import Protocol

import torch
from torch import Tensor, nn

from tandem.config.training import CrossTrain, DualTrain
from tandem.models.tokens import Tokens
from tandem.training.forward import Seeds
from tandem.training.lists import Batch
from tandem.training.losses import distillation_loss, supervision_loss


class Objective(Protocol):
    """A loss over batches, and the models it trains by part (`dual`, `cross`).

    Where several processes train (`World`), each gets the whole batch and computes its share of the queries. The loop
    sums gradients and loss terms over the processes: both are divided by the whole batch's number of queries.
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
    """Carry the gradient of a loss of several terms into whatever they were computed from.

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


def add(totals: dict[str, float], values: dict[str, float]) -> None:
    """Add values up by name."""
    for name, value in values.items():
        totals[name] = totals.get(name, 0.0) + value


class ListLoss:
    """weight · distillation(scores, teacher) + supervision · loss(scores) with `train.distil`; else the loss alone."""

    def __init__(self, train: DualTrain | CrossTrain) -> None:
        self.supervision, self.distil = supervision_loss(train.loss, train), train.distil
        self.distillation = distillation_loss(self.distil.loss, self.distil) if self.distil else None

    def __call__(self, scores: Tensor, mask: Tensor, own: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The loss's terms, each summed over the lists.

        Args:
            scores: of each list, in batch followed by the other lists' passages, shape (queries, list + more).
            mask: True where a passage counts, same shape.
            own: scores of the lists alone, which a teacher has scored, shape (queries, list).
            batch: the lists. A passage without a teacher's score is left out of the distillation, and so is a list
                with fewer than two scored ones.
        """
        if self.distil is None or self.distillation is None:
            return {"sup": self.supervision(scores, mask)}
        if batch.teacher is None:
            raise ValueError("train.distil needs lists with a teacher's scores")
        teacher = torch.from_numpy(batch.teacher).to(own)
        scored = torch.from_numpy(batch.mask).to(own.device) & teacher.isfinite()
        lists = scored.sum(-1) > 1  # one score compares with nothing
        distilled = self.distillation(own[lists], teacher.masked_fill(~scored, 0.0)[lists], scored[lists])
        terms = {"distil": distilled * self.distil.weight}
        if self.distil.supervision:
            terms["sup"] = self.supervision(scores, mask) * self.distil.supervision
        return terms
