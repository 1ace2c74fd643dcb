"""The dual encoder's objective: softmax over the positive, hard negatives and in-batch negatives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.training import BATCH_TERMS, DualTrain
from tandem.errors import UserError
from tandem.models.dual import DualEncoder
from tandem.models.ragged import Ids
from tandem.models.tokens import Tokens
from tandem.store.job import load
from tandem.training.distributed import SINGLE_PROCESS, World
from tandem.training.forward import Budget, ScoreFunction, Seeds, TextVectors, list_scores
from tandem.training.lists import Batch, Positives
from tandem.training.objectives import apply_gradient, make_mask, start_list_loss

Taught = Callable[[Tensor], Tensor]  # a teacher's loss of a batch, from the student's scores


@dataclass(frozen=True)
class InBatch:
    """Vectors and scores of this process' queries among the passages of the whole batch, all with gradient.

    Attributes:
        queries: vectors of this process' queries, shape (queries, …).
        passages: vectors of all passages of the batch, all processes' lists in order, shape (all passages, …).
        scores: of each query's own list, of no meaning where no passage stands, followed in batch by those of all
            `passages`, shape (queries, list + more).
        mask: True where a passage counts, shape of `scores`.
        batch: this process' lists.
        own_passages: vectors of this process' passages in the order of `batch.mask`, shape (passages, …).
        score: the model's `scores`, of encoded queries against encoded passages.
        gather: rows of all processes in order, with gradient, from this process' rows.
        teach: a `BatchTeacher`'s loss of the batch, if there is one.
    """

    queries: Tensor
    passages: Tensor
    scores: Tensor
    mask: Tensor
    batch: Batch
    own_passages: Tensor
    score: ScoreFunction
    step: int
    gather: Callable[[Tensor], Tensor]
    teach: Taught | None = None

    @property
    def own(self) -> Tensor:
        """Scores of each query's own list, shape (queries, list)."""
        return self.scores[:, : self.batch.passages.shape[1]]

    @property
    def own_positives(self) -> Tensor:
        """Vectors of the first passage of each list of this process, shape (queries, …)."""
        lengths = self.batch.mask.sum(1)
        starts = lengths.cumsum() - lengths
        return self.own_passages[torch.from_numpy(starts).to(self.scores.device)]


def list_batch_rows(batch: Batch, world: World) -> tuple[Ids, Ids]:
    """Return the numbers in a whole batch of this process' queries, and of each passage's list."""
    count = len(batch.queries)
    return np.arange(count)[world.slice(count)], np.argwhere(batch.mask)[:, 0]


class BatchTeacher(Protocol):
    """Describe a teacher that scores each batch as it is visited."""

    def loss(self, batch: Batch, world: World) -> Taught:
        """Return the loss of a whole batch, as a function of the student's scores of this process' queries."""


class QueryCopies(Protocol):
    """Describe other wordings of queries that a loss reads beside a batch."""

    def draw(self, queries: Ids, seeds: Seeds) -> Ids:
        """Return the row of a copy of each query, the same in whatever process; shape (queries,)."""

    def compare(
        self,
        objective: "DualObjective",
        copies: Tensor,
        queries: Tensor,
        everyone: Tensor,
        passages: Tensor,
        own: Batch,
    ) -> Tensor:
        """Return the term of the loss, a sum over queries, from vectors of the copies, the queries and the passages.

        Args:
            everyone: the passages of the whole batch.
            passages: those of this process' lists, `own`.
        """


@dataclass(eq=False)
class DualObjective:
    """Base of the objectives of one dual encoder; `positives` are the known ones of the training queries."""

    model: DualEncoder
    tokens: Tokens
    train: DualTrain
    positives: Positives
    budget: Budget
    world: World = SINGLE_PROCESS

    def __post_init__(self) -> None:
        self.models = nn.ModuleDict({"dual": self.model})
        self.vectors = TextVectors(self.model, self.tokens, self.train.precision, self.budget)

    @torch.no_grad()
    def scores(self, batch: Batch, pool: Ids) -> dict[str, Tensor]:
        """See `Ranker`."""
        return {"dual": self.vectors.pool_scores(batch.queries, pool, self.world)}


@dataclass(eq=False)
class BatchDualObjective(DualObjective):
    """-log( e^{s(q,p+)} / Σ_p e^{s(q,p)} ) over a query's own list and, in batch, the other queries' passages.

    The loss of DPR, RocketQA and the DuReader-retrieval baseline (there without the mask: here a passage of the batch
    that is a known positive of a query is not its negative). With several processes the batch is that of all of them:
    RocketQA's cross-batch negatives (§3.2), here with the gradient of every query reaching every passage. With
    `matryoshka` it is the sum of the losses of the whole vectors and of their beginnings (Kusupati et al. 2022, Eq. 1).
    With `self_teaching` a broken copy of each query learns, too (`QueryCopies`).
    """

    teacher: BatchTeacher | None = None
    broken: QueryCopies | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        train = self.train
        if (train.self_teaching is not None) != (self.broken is not None):
            raise ValueError("train.self_teaching and the broken queries belong together")
        is_taught = train.distil is not None and train.distil.in_batch is not None
        if is_taught != (self.teacher is not None):
            raise ValueError("train.distil.in_batch and its teacher belong together")
        dimension = self.model.dimension
        widest = max(train.matryoshka, default=0)
        if widest >= dimension:
            raise UserError(
                f"train.matryoshka is {widest}, but vectors have {dimension} numbers: name fewer"
            )
        self.list_loss = start_list_loss(train)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. In-batch negatives bind the queries together, so all vectors meet in one loss."""
        own = self.world.share(batch)
        sides = [*self.vectors.of_batch(own, seeds)]
        queries, passages = (side.values() for side in sides)
        everyone = self.world.gather(passages)
        typos = None
        if self.broken is not None:
            copies = self.broken.draw(own.queries, seeds.child(2))
            sides.append(self.vectors.of_side("query", copies, seeds.child(3)))
            typos = sides[-1].values()
        teach = self.teacher.loss(batch, self.world) if self.teacher else None
        options = (self.model.scores, seeds.step, self.world.gather, teach)

        terms: dict[str, Tensor] = {}
        for dim in (None, *self.train.matryoshka):
            q = self._cut(queries, dim)
            p = self._cut(passages, dim)
            every = self._cut(everyone, dim)
            scores, mask = self.scored(q, p, every, own, batch)
            terms_of_cut = self.terms(InBatch(q, every, scores, mask, own, p, *options))
            if self.broken is not None and typos is not None:
                terms_of_cut["self_teaching"] = self.broken.compare(
                    self, self._cut(typos, dim), q, every, p, own
                )
            for name, term in terms_of_cut.items():
                terms[name] = terms[name] + term if name in terms else term
        values = apply_gradient(terms, len(batch.queries))
        for side in sides:
            side.backward()
        return values

    def _cut(self, vectors: Tensor, dim: int | None) -> Tensor:
        """Return the first `dim` numbers of vectors, of length 1 again where the whole ones are.

        Without `dim` they are the whole ones.
        """
        if dim is None:
            return vectors
        begins = vectors[..., :dim]
        return nn.functional.normalize(begins, dim=-1) if self.model.normalize else begins

    def scored(
        self, queries: Tensor, passages: Tensor, everyone: Tensor, own: Batch, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """Return scores and mask over each query's own list, followed in batch by all lists' passages.

        Args:
            everyone: the passages' vectors of all processes.
            batch: the whole batch.
        Returns:
            Two tensors of shape (own queries, list) or (own queries, list + passages of the batch).
        """
        scores = list_scores(self.model.scores, queries, passages, own)
        mask = make_mask(own, scores)
        if not self.train.in_batch:
            return scores, mask
        mine, lists = list_batch_rows(batch, self.world)
        is_known = self.positives.mask_known(own.queries, batch.passages[batch.mask])
        is_negative = (lists != mine[:, None]) & ~is_known
        scores_of_others = self.model.scores(queries, everyone)
        mask_of_others = torch.from_numpy(is_negative).to(mask.device)
        return torch.cat([scores, scores_of_others], 1), torch.cat([mask, mask_of_others], 1)

    def terms(self, state: InBatch) -> dict[str, Tensor]:
        """Return the loss's terms by name, each a sum over this process' queries.

        They are those of the lists, a `BatchTeacher`'s, and what `BATCH_TERMS` makes of them.
        """
        terms = self.list_loss(state.scores, state.mask, state.own, state.batch)
        if state.teach:
            terms["in_batch"] = state.teach(state.score(state.queries, state.passages))
        for key, add in BATCH_TERMS.items():
            if getattr(self.train, key):
                terms = load(add)(self.train, state, terms)
        return terms
