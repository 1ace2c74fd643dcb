"""Compute a batch's loss and carry its gradient into the models: a re-ranker, or a re-ranker and a retriever."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from tandem.config.training import TEACHING, CrossTrain, DualTrain, JointTrain
from tandem.models.cross import CrossEncoder
from tandem.models.dual import DualEncoder
from tandem.models.ragged import Ids
from tandem.models.tokens import Tokens
from tandem.store.job import load
from tandem.training.distributed import SINGLE_PROCESS, World
from tandem.training.forward import (
    Budget,
    CrossScores,
    Seeds,
    TextVectors,
    place_in_lists,
    score_own_lists,
)
from tandem.training.lists import Batch, Positives
from tandem.training.losses import (
    average_over_positives,
    find_distillation_loss,
    find_supervision_loss,
)


class Objective(Protocol):
    """Compute a loss over batches for the models that it trains, by part (`dual`, `cross`).

    If several processes train (`World`), each gets the whole batch and computes its share of the queries. Gradients
    and loss terms are divided by the whole batch's number of queries, and the loop sums them over the processes.
    """

    models: nn.ModuleDict
    tokens: Tokens

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """Add the gradient of this process' share of the batch to the weights.

        Returns:
            `loss` and its parts, divided by the batch's number of queries; every share has the same names in the same
            order.
        """


class Ranker(Objective, Protocol):
    """An objective whose parts can rank passages."""

    def scores(self, batch: Batch, pool: Ids) -> dict[str, Tensor]:
        """Return scores by part, without gradient: `dual` of each query with the pool, `cross` with its own list.

        Shapes (queries, pool) and (queries, list). `batch` has this process' queries; all processes have the same pool.
        """


def make_mask(batch: Batch, like: Tensor) -> Tensor:
    """Return the batch's mask as a tensor on the scores' device."""
    return torch.from_numpy(batch.mask).to(like.device)


def apply_gradient(terms: dict[str, Tensor], queries: int) -> dict[str, float]:
    """Sum the terms of a loss and carry its gradient into the tensors that they were computed from.

    Args:
        terms: each a sum over some lists of the batch.
        queries: number of queries of the whole batch; every term is divided by it.
    Returns:
        `loss`, and each of its terms if there are several.
    """
    parts = {name: term / queries for name, term in terms.items()}
    if len(parts) > 1:
        values = {"loss": torch.stack(list(parts.values())).sum(), **parts}
    else:
        (loss,) = parts.values()
        values = {"loss": loss}
    values["loss"].backward()
    # All are read in one go: each reading makes a GPU wait.
    numbers = torch.stack(list(values.values())).tolist()
    return dict(zip(values, numbers, strict=True))


def add_to_totals(totals: dict[str, float], values: dict[str, float]) -> None:
    """Add each value to the total of its name."""
    for name, value in values.items():
        totals[name] = totals.get(name, 0.0) + value


class ListLoss:
    """Compute `train.loss` of lists, whose first passages are the positives."""

    def __init__(self, train: DualTrain | CrossTrain) -> None:
        self.supervision = find_supervision_loss(train.loss, train)

    def __call__(
        self, scores: Tensor, mask: Tensor, own: Tensor, batch: Batch
    ) -> dict[str, Tensor]:
        """Return the loss's terms, each summed over the lists.

        Args:
            scores: scores of each query with its own list; with `in_batch`, scores with the other lists' passages
                follow; shape (queries, list + more).
            mask: True where a passage counts, same shape.
            own: scores of each query with only its own list, which a teacher scores, too, shape (queries, list).
            batch: the lists.
        """
        return {"sup": average_over_positives(self.supervision, scores, mask, batch.positives)}


def start_list_loss(train: DualTrain | CrossTrain) -> ListLoss:
    """Return the loss of a training's lists; with `train.distil` it also learns from a teacher's scores."""
    if train.distil is None:
        return ListLoss(train)
    loss: ListLoss = load(TEACHING["distil"].loss)(train)
    return loss


class SeparableRanker(ABC):
    """Compute a loss that is a sum over queries, in parts of a few lists; the gradient is exactly that of the whole.

    With `in_batch` each list is lengthened by the other queries' positives.
    """

    train: CrossTrain | JointTrain
    positives: Positives
    pairs: CrossScores
    world: World

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`."""
        if self.train.in_batch:
            batch = self.positives.lengthen(batch)
        totals: dict[str, float] = {"loss": 0.0}
        for number, part in enumerate(self.split(self.world.share(batch))):
            add_to_totals(totals, self.backward_part(part, len(batch.queries), seeds.child(number)))
        return totals

    def split(self, batch: Batch) -> Iterator[Batch]:
        """Yield the batch in parts of a few lists each; the graph of one part is kept at a time."""
        return self.pairs.split(batch)

    @abstractmethod
    def backward_part(self, batch: Batch, queries: int, seeds: Seeds) -> dict[str, float]:
        """Add the gradient of a part of the batch to the weights, and return its loss and terms.

        Args:
            queries: number of queries of the whole batch.
        """

    @torch.no_grad()
    def scores(self, batch: Batch, pool: Ids) -> dict[str, Tensor]:
        """See `Ranker`."""
        pairs = self.pairs.score_lists(batch, Seeds((0,)))
        return {"cross": place_in_lists(pairs.values(), batch)}


@dataclass(eq=False)
class Cross(SeparableRanker):
    """Train only a cross-encoder, by `listwise` (RocketQAv2 Eq. 5), `pointwise` (RocketQA, DuReader-retrieval), …."""

    model: CrossEncoder
    tokens: Tokens
    train: CrossTrain
    positives: Positives
    budget: Budget
    world: World = SINGLE_PROCESS

    def __post_init__(self) -> None:
        self.models = nn.ModuleDict({"cross": self.model})
        self.pairs = CrossScores(self.model, self.tokens, self.train.precision, self.budget)
        self.list_loss = start_list_loss(self.train)

    def backward_part(self, batch: Batch, queries: int, seeds: Seeds) -> dict[str, float]:
        """See `SeparableRanker`."""
        pairs = self.pairs.score_lists(batch, seeds)
        scores = place_in_lists(pairs.values(), batch)
        terms = self.list_loss(scores, make_mask(batch, scores), scores, batch)
        values = apply_gradient(terms, queries)
        pairs.backward()
        return values


@dataclass(eq=False)
class Joint(SeparableRanker):
    """L = w L_KL + L_sup (RocketQAv2 Eq. 6): dynamic listwise distillation plus the re-ranker's supervision.

    Both terms are means over the batch's N queries. In the paper Eq. 4 is a sum over queries and Eq. 5 a mean: `weight`
    w = 1 divides both by N; w = N (`queries_per_batch`) is Eq. 6 to the letter.

    `semantics` is `paper` (Eq. 4, gradient to both), `reference` (what the released code computes) or any other
    distillation of `training.losses`; no gradient flows to the re-ranker, except in `paper`. A `static` teacher is
    frozen and not supervised (the paper's "w/ Static Distillation"). `supervision` is `listwise` (Eq. 5), `pointwise`
    (its "w/ Pointwise") or another.
    """

    dual: DualEncoder
    cross: CrossEncoder
    tokens: Tokens
    cross_tokens: Tokens
    train: JointTrain
    positives: Positives
    budget: Budget
    world: World = SINGLE_PROCESS

    def __post_init__(self) -> None:
        self.models = nn.ModuleDict({"dual": self.dual, "cross": self.cross})
        self.vectors = TextVectors(self.dual, self.tokens, self.train.precision, self.budget)
        self.pairs = CrossScores(self.cross, self.cross_tokens, self.train.precision, self.budget)
        self.distillation = find_distillation_loss(self.train.semantics, self.train)
        self.supervision = find_supervision_loss(self.train.supervision, self.train)
        self.static = self.train.teacher == "static"
        if self.static:
            self.cross.requires_grad_(False)

    def backward_part(self, batch: Batch, queries: int, seeds: Seeds) -> dict[str, float]:
        """See `SeparableRanker`."""
        query_side, passage_side = self.vectors.encode_batch(batch, seeds.child(0))
        de = score_own_lists(self.dual.scores, query_side.values(), passage_side.values(), batch)
        if self.static:
            self.cross.eval()
        pairs = self.pairs.score_lists(batch, seeds.child(1))
        with torch.set_grad_enabled(not self.static):
            ce = place_in_lists(pairs.values(), batch)

        mask = make_mask(batch, de)
        kl = self.distillation(de, ce, mask) * self.train.weight
        if self.static:
            sup = torch.zeros_like(kl)
        else:
            sup = average_over_positives(self.supervision, ce, mask, batch.positives)
        values = apply_gradient({"kl": kl, "sup": sup}, queries)
        for computed in (query_side, passage_side, pairs):
            computed.backward()
        return values

    @torch.no_grad()
    def scores(self, batch: Batch, pool: Ids) -> dict[str, Tensor]:
        """See `Ranker`."""
        dual = self.vectors.score_pool(batch.queries, pool, self.world)
        return {"dual": dual, **super().scores(batch, pool)}
