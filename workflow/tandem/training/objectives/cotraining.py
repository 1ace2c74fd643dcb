"""SpaDE's objective: two encoders that each learn by themselves, from the lists that the other one knows least."""

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.training import DualTrain
from tandem.models.ragged import Ids
from tandem.models.spade import Spade
from tandem.models.tokens import Tokens
from tandem.training.distributed import ALONE, World
from tandem.training.forward import Budget, Seeds, batch_texts, list_scores, pool_scores
from tandem.training.lists import Batch, Positives
from tandem.training.objectives import mask_of
from tandem.training.objectives.dual import Dual, InBatch, Teacher


class CoTraining:
    """L = L_w + L_e, the losses of `Dual` by passages' weights w and by their expansion e (SpaDE: Choi et al. 2022).

    With `co_training` L_w is of that share of a batch's lists where e's -log( e^{s(q,p+)} / Σ_p e^{s(q,p)} ) over the
    list is largest, and L_e of those where w's is; without, both are of all lists.
    """

    def __init__(
        self,
        model: Spade,
        tokens: Tokens,
        train: DualTrain,
        positives: Positives,
        budget: Budget,
        world: World = ALONE,
        teacher: Teacher | None = None,
    ) -> None:
        self.models = nn.ModuleDict({"dual": model})
        self.model, self.tokens, self.train, self.budget, self.world = model, tokens, train, budget, world
        options = (tokens, train, positives, budget, world, teacher)
        self.weights = Dual(model.alone("weights"), *options)
        self.expansion = Expanding(model.alone("expansion"), *options)

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

    @torch.no_grad()
    def scores(self, batch: Batch, pool: Ids) -> dict[str, Tensor]:
        """See `Ranker`: by both parts together."""
        mode = self.train.precision
        return {"dual": pool_scores(self.model, self.tokens, batch.queries, pool, mode, self.budget, self.world)}


class Expanding(Dual):
    """The loss of a passage's expansion, which also learns to say the terms of its query."""

    def terms(self, state: InBatch) -> dict[str, Tensor]:
        """Those of `Dual`, and -Σ_{t ∈ q} log( e^{e(p+)_t} / Σ_j e^{e(p+)_j} ), summed over queries."""
        likely = state.own_positives.log_softmax(1)
        return super().terms(state) | {"query_terms": -(state.queries * likely).sum()}
