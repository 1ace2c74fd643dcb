"""Re-rankers: a cross-encoder alone, or together with a retriever on the same lists (RocketQAv2)."""

import torch
from torch import Tensor, nn

from tandem.config.training import CrossTrain, JointTrain
from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.tokens import Tokens
from tandem.training.distributed import ALONE, World
from tandem.training.forward import Budget, Replayed, Seeds, batch_pairs, batch_texts, list_scores, on_lists, split
from tandem.training.lists import Batch, Positives
from tandem.training.losses import distillation_loss, supervision_loss
from tandem.training.objectives import ListLoss, add, backward, mask_of


class Cross:
    """Supervision of a cross-encoder: `listwise` (RocketQAv2 Eq. 5), `pointwise` (RocketQA, DuReader-retrieval), ….

    `in_batch` lengthens each list by the other queries' positives.
    """

    def __init__(
        self,
        model: CrossEncoder,
        tokens: Tokens,
        train: CrossTrain,
        positives: Positives,
        budget: Budget,
        world: World = ALONE,
    ) -> None:
        self.models = nn.ModuleDict({"cross": model})
        self.model, self.tokens, self.train, self.positives = model, tokens, train, positives
        self.budget, self.world = budget, world
        self.list_loss = ListLoss(train)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. The loss falls apart per query: lists are computed a few at a time, exactly."""
        if self.train.in_batch:
            batch = self.positives.lengthened(batch)
        totals: dict[str, float] = {"loss": 0.0}
        for number, part in enumerate(split(self.world.share(batch), self.tokens, self.budget.graph_tokens)):
            pairs = self._pairs(part, seeds.child(number))
            scores = on_lists(pairs.values(), part)
            terms = self.list_loss(scores, mask_of(part, scores), scores, part)
            add(totals, backward(terms, len(batch.queries)))
            pairs.backward()
        return totals

    def _pairs(self, batch: Batch, seeds: Seeds) -> Replayed:
        return batch_pairs(self.model, self.tokens, batch, self.train.precision, self.budget, seeds)

    @torch.no_grad()
    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """See `Objective`."""
        return {"cross": on_lists(self._pairs(batch, Seeds((0,))).values(), batch)}


class Joint:
    """L = L_KL + L_sup (RocketQAv2 Eq. 6): dynamic listwise distillation plus the re-ranker's supervision.

    `semantics` is `paper` (Eq. 4, gradient to both), `reference` (what the released code computes) or any other
    distillation of `training.losses`; no gradient flows to the re-ranker, except in `paper`. A `static` teacher is
    frozen and not supervised (the paper's "w/ Static Distillation"). `supervision` is `listwise` (Eq. 5), `pointwise`
    (its "w/ Pointwise") or another. `in_batch` lengthens each list by the other queries' positives.
    """

    def __init__(
        self,
        dual: DualEncoder,
        cross: CrossEncoder,
        tokens: Tokens,
        cross_tokens: Tokens,
        train: JointTrain,
        positives: Positives,
        budget: Budget,
        world: World = ALONE,
    ) -> None:
        self.models = nn.ModuleDict({"dual": dual, "cross": cross})
        self.dual, self.cross, self.tokens, self.cross_tokens = dual, cross, tokens, cross_tokens
        self.train, self.positives, self.budget, self.world = train, positives, budget, world
        self.distillation = distillation_loss(train.semantics, train)
        self.supervision = supervision_loss(train.supervision, train)
        self.static = train.teacher == "static"
        if self.static:
            cross.requires_grad_(False)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. Both losses fall apart per query: lists are computed a few at a time, exactly."""
        if self.train.in_batch:
            batch = self.positives.lengthened(batch)
        totals: dict[str, float] = {"loss": 0.0}
        for number, part in enumerate(split(self.world.share(batch), self.cross_tokens, self.budget.graph_tokens)):
            add(totals, self._part(part, len(batch.queries), seeds.child(number)))
        return totals

    def _part(self, batch: Batch, queries: int, seeds: Seeds) -> dict[str, float]:
        """Gradient of a few lists' share of the loss; `queries` is the size of the whole batch."""
        sides = self._texts(batch, seeds.child(0))
        de = list_scores(sides[0].values(), sides[1].values(), batch, self.dual.temperature)
        if self.static:
            self.cross.eval()
        pairs = self._pairs(batch, seeds.child(1))
        with torch.set_grad_enabled(not self.static):
            ce = on_lists(pairs.values(), batch)
        mask = mask_of(batch, de)
        kl = self.distillation(de, ce, mask)
        sup = torch.zeros_like(kl) if self.static else self.supervision(ce, mask)
        values = backward({"kl": kl, "sup": sup}, queries)
        for computed in (*sides, pairs):
            computed.backward()
        return values

    def _texts(self, batch: Batch, seeds: Seeds) -> tuple[Replayed, Replayed]:
        return batch_texts(self.dual, self.tokens, batch, self.train.precision, self.budget, seeds)

    def _pairs(self, batch: Batch, seeds: Seeds) -> Replayed:
        return batch_pairs(self.cross, self.cross_tokens, batch, self.train.precision, self.budget, seeds)

    @torch.no_grad()
    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """See `Objective`."""
        queries, passages = (side.values() for side in self._texts(batch, Seeds((0,))))
        dual = list_scores(queries, passages, batch, self.dual.temperature)
        return {"dual": dual, "cross": on_lists(self._pairs(batch, Seeds((0,))).values(), batch)}
