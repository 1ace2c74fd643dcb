"""RocketQAv2's joint objective: a retriever and a re-ranker learn together on the same lists."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.tokens import Tokens
from tandem.training.forward import Budget, Seeds, batch_texts, list_scores, pair_scores, split
from tandem.training.lists import Batch
from tandem.training.losses import DISTILLATIONS, supervision
from tandem.training.objectives import mask_of
from tandem.training.positives import Positives


class Joint:
    """L = L_KL + L_sup (RocketQAv2 Eq. 6): dynamic listwise distillation plus the re-ranker's supervision.

    `semantics` is `paper` (Eq. 4, gradient to both) or `reference` (what the released code computes). A `static`
    teacher is frozen and not supervised (the paper's "w/ Static Distillation"). `supervision` is `listwise` (Eq. 5) or
    `pointwise` (its "w/ Pointwise"). `in_batch` lengthens each list by the other queries' positives.
    """

    def __init__(
        self,
        dual: DualEncoder,
        cross: CrossEncoder,
        tokens: Tokens,
        cross_tokens: Tokens,
        train: dict[str, Any],
        positives: Positives,
        budget: Budget,
    ) -> None:
        self.models = nn.ModuleDict({"dual": dual, "cross": cross})
        self.dual, self.cross, self.tokens, self.cross_tokens = dual, cross, tokens, cross_tokens
        self.train, self.positives, self.budget = train, positives, budget
        self.static = train["teacher"] == "static"
        if self.static:
            cross.requires_grad_(False)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. Both losses fall apart per query: lists are computed a few at a time, exactly."""
        if self.train["in_batch"]:
            batch = self.lengthened(batch)
        told = {"loss": 0.0, "kl": 0.0, "sup": 0.0}
        for number, part in enumerate(split(batch, self.cross_tokens, self.budget.graph_tokens)):
            for name, value in self._part(part, len(batch.queries), seeds.child(number)).items():
                told[name] += value
        return told

    def _part(self, batch: Batch, queries: int, seeds: Seeds) -> dict[str, float]:
        """Gradient of a few lists' share of the loss; `queries` is the size of the whole batch."""
        sides, de = self._dual_scores(batch, seeds.child(0))
        if self.static:
            self.cross.eval()
        ce = self._cross_scores(batch, seeds.child(1))
        mask = mask_of(batch, de)
        kl = DISTILLATIONS[self.train["semantics"]](de, ce, mask) / queries
        sup = torch.zeros_like(kl) if self.static else supervision(self.train, "supervision")(ce, mask) / queries
        loss = kl + sup
        loss.backward()
        for side in sides:
            side.backward()
        return {"loss": loss.item(), "kl": kl.item(), "sup": sup.item()}

    def _dual_scores(self, batch: Batch, seeds: Seeds) -> tuple[Any, Tensor]:
        sides = batch_texts(self.dual, self.tokens, batch, self.train["precision"], self.budget, seeds)
        return sides, list_scores(sides[0].vectors(), sides[1].vectors(), batch, self.dual.temperature)

    def _cross_scores(self, batch: Batch, seeds: Seeds) -> Tensor:
        mode, budget = self.train["precision"], self.budget.micro_tokens
        return pair_scores(self.cross, self.cross_tokens, batch, mode, budget, seeds)

    def lengthened(self, batch: Batch) -> Batch:
        """Each list followed by the other queries' positives that are not its own query's."""
        firsts = batch.passages[:, 0]
        others = np.tile(firsts, (len(firsts), 1))
        barred = self.positives.known(batch.queries, firsts) | np.eye(len(firsts), dtype=bool)
        return replace(batch, passages=np.concatenate([batch.passages, np.where(barred, -1, others)], 1))

    @torch.no_grad()
    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """See `Objective`."""
        return {"dual": self._dual_scores(batch, Seeds((0,)))[1], "cross": self._cross_scores(batch, Seeds((0,)))}
