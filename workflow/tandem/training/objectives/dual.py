"""The dual encoder's objective: softmax over the positive, hard negatives and in-batch negatives."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.tokens import Tokens
from tandem.training.forward import Budget, Seeds, batch_texts, list_scores
from tandem.training.lists import Batch
from tandem.training.objectives import backward, mask_of
from tandem.training.objectives.lesson import Lesson
from tandem.training.positives import Positives


class Dual:
    """-log( e^{s(q,p+)} / Σ_p e^{s(q,p)} ) over a query's own list and, in batch, the other queries' passages.

    The loss of DPR, RocketQA and the DuReader-retrieval baseline (there without the mask: here a passage of the batch
    that is a known positive of a query is not its negative).
    """

    def __init__(
        self, model: DualEncoder, tokens: Tokens, train: dict[str, Any], positives: Positives, budget: Budget
    ) -> None:
        self.models = nn.ModuleDict({"dual": model})
        self.model, self.tokens, self.train, self.positives, self.budget = model, tokens, train, positives, budget
        self.lesson = Lesson(train)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. In-batch negatives bind the queries together, so all vectors meet in one loss."""
        sides = batch_texts(self.model, self.tokens, batch, self.train["precision"], self.budget, seeds)
        queries, passages = (side.vectors() for side in sides)
        scores, mask = self.with_in_batch(queries, passages, batch)
        own = scores[:, : batch.passages.shape[1]]
        told = backward(self.lesson(scores, mask, own, batch), len(batch.queries))
        for side in sides:
            side.backward()
        return told

    def with_in_batch(self, queries: Tensor, passages: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Scores and mask over each query's own list, followed in batch by all other lists' passages.

        Returns:
            Two tensors of shape (queries, list) or (queries, list + passages of the batch).
        """
        own = list_scores(queries, passages, batch, self.model.temperature)
        mask = mask_of(batch, own)
        if not self.train["in_batch"]:
            return own, mask
        owner = np.argwhere(batch.mask)[:, 0]
        other = owner[None, :] != np.arange(len(batch.queries))[:, None]
        negative = other & ~self.positives.known(batch.queries, batch.passages[batch.mask])
        crossed = dot_scores(queries, passages, self.model.temperature)
        return torch.cat([own, crossed], 1), torch.cat([mask, torch.from_numpy(negative).to(own.device)], 1)

    @torch.no_grad()
    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """See `Objective`."""
        sides = batch_texts(self.model, self.tokens, batch, self.train["precision"], self.budget, Seeds((0,)))
        return {"dual": list_scores(sides[0].vectors(), sides[1].vectors(), batch, self.model.temperature)}
