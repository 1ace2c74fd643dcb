"""The dual encoder's objective: softmax over the positive, hard negatives and in-batch negatives."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.tokens import Tokens
from tandem.training.distributed import ALONE, World
from tandem.training.forward import Budget, Replayed, Seeds, batch_texts, list_scores
from tandem.training.lists import Batch
from tandem.training.objectives import backward, mask_of
from tandem.training.objectives.dual_terms import InBatch, terms
from tandem.training.objectives.lesson import Lesson
from tandem.training.positives import Positives


class Dual:
    """-log( e^{s(q,p+)} / Σ_p e^{s(q,p)} ) over a query's own list and, in batch, the other queries' passages.

    The loss of DPR, RocketQA and the DuReader-retrieval baseline (there without the mask: here a passage of the batch
    that is a known positive of a query is not its negative). With several processes the batch is that of all of them:
    RocketQA's cross-batch negatives (§3.2), here with the gradient of every query reaching every passage.
    """

    def __init__(
        self,
        model: DualEncoder,
        tokens: Tokens,
        train: dict[str, Any],
        positives: Positives,
        budget: Budget,
        world: World = ALONE,
    ) -> None:
        self.models = nn.ModuleDict({"dual": model})
        self.model, self.tokens, self.train, self.positives = model, tokens, train, positives
        self.budget, self.world = budget, world
        self.lesson = Lesson(train)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. In-batch negatives bind the queries together, so all vectors meet in one loss."""
        own = self.world.share(batch)
        sides = self._texts(own, seeds)
        queries, passages = (side.values() for side in sides)
        everyone = self.world.gather(passages)
        scores, mask = self.scored(queries, passages, everyone, own, batch)
        lists = scores[:, : batch.passages.shape[1]]
        seen = InBatch(
            queries, everyone, lists, scores, mask, own, passages, self.model.temperature, seeds.step, self.world.gather
        )
        told = backward(terms(self.train, self.lesson, seen), len(batch.queries))
        for side in sides:
            side.backward()
        return told

    def scored(
        self, queries: Tensor, passages: Tensor, everyone: Tensor, own: Batch, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """Scores and mask over each query's own list, followed in batch by all lists' passages.

        Args:
            queries: vectors of this process' queries.
            passages: vectors of this process' passages.
            everyone: vectors of all processes' passages.
            own: this process' share of the batch.
            batch: the whole batch.
        Returns:
            Two tensors of shape (own queries, list) or (own queries, list + passages of the batch).
        """
        scores = list_scores(queries, passages, own, self.model.temperature)
        mask = mask_of(own, scores)
        if not self.train["in_batch"]:
            return scores, mask
        mine = np.arange(len(batch.queries))[self.world.slice(len(batch.queries))]
        other = np.argwhere(batch.mask)[:, 0] != mine[:, None]
        negative = other & ~self.positives.known(own.queries, batch.passages[batch.mask])
        crossed = dot_scores(queries, everyone, self.model.temperature)
        return torch.cat([scores, crossed], 1), torch.cat([mask, torch.from_numpy(negative).to(mask.device)], 1)

    def _texts(self, batch: Batch, seeds: Seeds) -> tuple[Replayed, Replayed]:
        return batch_texts(self.model, self.tokens, batch, self.train["precision"], self.budget, seeds)

    @torch.no_grad()
    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """See `Objective`."""
        queries, passages = (side.values() for side in self._texts(batch, Seeds((0,))))
        return {"dual": list_scores(queries, passages, batch, self.model.temperature)}
