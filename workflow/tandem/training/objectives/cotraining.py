"""SpaDE's objective: two encoders that each learn by themselves, from the lists that the other one knows least."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.models.spade import Spade
from tandem.training.forward import Seeds, batch_texts, list_scores
from tandem.training.lists import Batch
from tandem.training.objectives import mask_of
from tandem.training.objectives.dual import Dual, DualObjective, InBatch, Teacher


@dataclass(eq=False)
class CoTraining(DualObjective):
    """L = L_w + L_e, the losses of `Dual` by passages' weights w and by their expansion e (SpaDE: Choi et al. 2022).

    With `co_training` L_w is of that share of a batch's lists where e's -log( e^{s(q,p+)} / Σ_p e^{s(q,p)} ) over the
    list is largest, and L_e of those where w's is; without, both are of all lists.
    """

    model: Spade
    teacher: Teacher | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        options = (self.tokens, self.train, self.positives, self.budget, self.world, self.teacher)
        self.weights = Dual(self.model.alone("weights"), *options)
        self.expansion = Expanding(self.model.alone("expansion"), *options)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`; beside `loss` stand L_w as `weights` and the terms of L_e."""
        by_expansion, by_weights = (self.hardest(judge, batch) for judge in (self.expansion, self.weights))
        weights = self.weights.backward(by_expansion, seeds.child(0))["loss"]
        values = self.expansion.backward(by_weights, seeds.child(1))
        return values | {"loss": values["loss"] + weights, "weights": weights}

    @torch.no_grad()
    def hardest(self, judge: Dual, batch: Batch) -> Batch:
        """The lists of a batch that one of the encoders, without dropout, knows least; all without `co_training`."""
        if not self.train.co_training:
            return batch
        self.models.eval()
        losses = self.world.gather(self._losses(judge, self.world.share(batch)))
        self.models.train()
        count = max(1, round(self.train.co_training * len(losses)))
        return batch.taken(np.sort((-losses).cpu().numpy().argsort(kind="stable")[:count]))

    def _losses(self, judge: Dual, own: Batch) -> Tensor:
        """Of each list by itself, shape (lists,)."""
        sides = batch_texts(judge.model, self.tokens, own, self.train.precision, self.budget, Seeds((0,)))
        queries, passages = (side.values() for side in sides)
        scores = list_scores(judge.model.scores, queries, passages, own)
        return -scores.masked_fill(~mask_of(own, scores), float("-inf")).log_softmax(1)[:, 0]


class Expanding(Dual):
    """The loss of a passage's expansion, which also learns to say the terms of its query."""

    def terms(self, state: InBatch) -> dict[str, Tensor]:
        """Those of `Dual`, and -Σ_{t ∈ q} log( e^{e(p+)_t} / Σ_j e^{e(p+)_j} ), summed over queries."""
        likely = state.own_positives.log_softmax(1)
        return super().terms(state) | {"query_terms": -(state.queries * likely).sum()}
