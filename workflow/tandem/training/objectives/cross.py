"""The cross-encoder's objective, listwise or pointwise."""

from typing import Any

import torch
from torch import nn

from tandem.models.cross import CrossEncoder
from tandem.models.tokens import Tokens
from tandem.training.distributed import ALONE, World
from tandem.training.forward import Budget, Replayed, Seeds, batch_pairs, on_lists, split
from tandem.training.lists import Batch
from tandem.training.objectives import add, backward, mask_of
from tandem.training.objectives.lesson import Lesson
from tandem.training.positives import Positives


class Cross:
    """`listwise` (RocketQAv2 Eq. 5) or `pointwise` (RocketQA, DuReader-retrieval) supervision of a cross-encoder.

    `in_batch` lengthens each list by the other queries' positives.
    """

    def __init__(
        self,
        model: CrossEncoder,
        tokens: Tokens,
        train: dict[str, Any],
        positives: Positives,
        budget: Budget,
        world: World = ALONE,
    ) -> None:
        self.models = nn.ModuleDict({"cross": model})
        self.model, self.tokens, self.train, self.positives = model, tokens, train, positives
        self.budget, self.world = budget, world
        self.lesson = Lesson(train)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. The loss falls apart per query: lists are computed a few at a time, exactly."""
        if self.train.get("in_batch"):
            batch = self.positives.lengthened(batch)
        told: dict[str, float] = {"loss": 0.0}
        for number, part in enumerate(split(self.world.share(batch), self.tokens, self.budget.graph_tokens)):
            pairs = self._pairs(part, seeds.child(number))
            scores = on_lists(pairs.values(), part)
            terms = self.lesson(scores, mask_of(part, scores), scores, part)
            add(told, backward(terms, len(batch.queries)))
            pairs.backward()
        return told

    def _pairs(self, batch: Batch, seeds: Seeds) -> Replayed:
        return batch_pairs(self.model, self.tokens, batch, self.train["precision"], self.budget, seeds)

    @torch.no_grad()
    def scores(self, batch: Batch) -> dict[str, torch.Tensor]:
        """See `Objective`."""
        return {"cross": on_lists(self._pairs(batch, Seeds((0,))).values(), batch)}
