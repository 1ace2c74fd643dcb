"""The cross-encoder's objective, listwise or pointwise."""

from typing import Any

import torch
from torch import Tensor, nn

from tandem.models.cross import CrossEncoder
from tandem.models.tokens import Tokens
from tandem.training.forward import Budget, Seeds, pair_scores, split
from tandem.training.lists import Batch
from tandem.training.objectives import add, backward, mask_of
from tandem.training.objectives.lesson import Lesson


class Cross:
    """`listwise` (RocketQAv2 Eq. 5) or `pointwise` (RocketQA, DuReader-retrieval) supervision of a cross-encoder."""

    def __init__(self, model: CrossEncoder, tokens: Tokens, train: dict[str, Any], budget: Budget) -> None:
        self.models = nn.ModuleDict({"cross": model})
        self.model, self.tokens, self.train, self.budget = model, tokens, train, budget
        self.lesson = Lesson(train)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. The loss falls apart per query: lists are computed a few at a time, exactly."""
        told: dict[str, float] = {"loss": 0.0}
        for number, part in enumerate(split(batch, self.tokens, self.budget.graph_tokens)):
            scores = self._score(part, seeds.child(number))
            terms = self.lesson(scores, mask_of(part, scores), scores, part)
            add(told, backward(terms, len(batch.queries)))
        return told

    def _score(self, batch: Batch, seeds: Seeds) -> Tensor:
        return pair_scores(self.model, self.tokens, batch, self.train["precision"], self.budget.micro_tokens, seeds)

    @torch.no_grad()
    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """See `Objective`."""
        return {"cross": self._score(batch, Seeds((0,)))}
