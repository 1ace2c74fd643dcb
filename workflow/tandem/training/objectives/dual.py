"""Train a dual encoder by the scores of its positives, hard negatives and in-batch negatives."""

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
from tandem.training.forward import Budget, ScoreFunction, Seeds, TextVectors, score_own_lists
from tandem.training.lists import Batch, Positives
from tandem.training.objectives import apply_gradient, make_mask, start_list_loss

# maps the student's scores of a batch to the loss of learning from a teacher
Taught = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class InBatch:
    """Hold vectors and scores of this process' queries and of the whole batch's passages, all with gradient.

    Attributes:
        queries: vectors of this process' queries, shape (queries, …).
        passages: vectors of the passages of the whole batch, list after list, shape (all passages, …).
        scores: scores of each query with its own list (without meaning in place of padding); with `in_batch`, scores
            with all `passages` follow; shape (queries, list + more).
        mask: True where a passage counts, same shape.
        batch: this process' lists.
        own_passages: vectors of this process' passages in the order of `batch.mask`, shape (passages, …).
        score: the model's `scores`: of encoded queries with encoded passages.
        step: number of steps done before this one.
        gather: returns the rows of all processes, with gradient, from this process' rows (`World.gather`).
        teach: the loss of a `BatchTeacher`, if there is one.
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
    """Return the places of this process' queries in the whole batch, and the list to which each passage belongs."""
    count = len(batch.queries)
    return np.arange(count)[world.slice(count)], np.argwhere(batch.mask)[:, 0]


class BatchTeacher(Protocol):
    """A teacher that scores each batch when the training visits it."""

    def loss(self, batch: Batch, world: World) -> Taught:
        """Return a function that computes the loss from the student's scores of this process' queries."""


class QueryCopies(Protocol):
    """Other wordings of the queries, which a loss reads in addition to a batch."""

    def draw(self, queries: Ids, seeds: Seeds) -> Ids:
        """Return the row of a copy of each query, the same in every process; shape (queries,)."""

    def compare(
        self,
        objective: "DualObjective",
        copies: Tensor,
        queries: Tensor,
        everyone: Tensor,
        passages: Tensor,
        own: Batch,
    ) -> Tensor:
        """Return the copies' term of the loss, a sum over queries, from vectors of copies, queries and passages.

        Args:
            everyone: vectors of the passages of the whole batch.
            passages: vectors of the passages of this process' lists, `own`.
        """


@dataclass(eq=False)
class DualObjective:
    """Base of the objectives of a dual encoder; `positives` holds the known positives of the training queries."""

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
        return {"dual": self.vectors.score_pool(batch.queries, pool, self.world)}


@dataclass(eq=False)
class BatchDualObjective(DualObjective):
    """-log( e^{s(q,p+)} / Σ_p e^{s(q,p)} ) over a query's own list and, with `in_batch`, the other queries' passages.

    This is the loss of DPR, RocketQA and the DuReader-retrieval baseline, except that here a known positive of a query
    is never its negative. Several processes share one batch: RocketQA's cross-batch negatives (§3.2), here with the
    gradient of every query reaching every passage. With `matryoshka` the losses of the whole vectors and of their
    beginnings are summed (Kusupati et al. 2022, Eq. 1). With `self_teaching` a broken copy of each query learns, too
    (`QueryCopies`).
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
        """See `Objective`. With in-batch negatives a loss cannot be split by query: all vectors are encoded first."""
        own = self.world.share(batch)
        sides = [*self.vectors.encode_batch(own, seeds)]
        queries, passages = (side.values() for side in sides)
        everyone = self.world.gather(passages)
        typos = None
        if self.broken is not None:
            copies = self.broken.draw(own.queries, seeds.child(2))
            sides.append(self.vectors.encode_side("query", copies, seeds.child(3)))
            typos = sides[-1].values()
        teach = self.teacher.loss(batch, self.world) if self.teacher else None
        options = (self.model.scores, seeds.step, self.world.gather, teach)

        terms: dict[str, Tensor] = {}
        for dim in (None, *self.train.matryoshka):  # None: the whole vectors
            q = self._cut(queries, dim)
            p = self._cut(passages, dim)
            every = self._cut(everyone, dim)
            scores, mask = self.score_batch(q, p, every, own, batch)
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
        """Return the first `dim` numbers of vectors, normalized again if the model normalizes; None: all numbers."""
        if dim is None:
            return vectors
        begins = vectors[..., :dim]
        return nn.functional.normalize(begins, dim=-1) if self.model.normalize else begins

    def score_batch(
        self, queries: Tensor, passages: Tensor, everyone: Tensor, own: Batch, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """Return scores and mask of each query with its own list and then, with `in_batch`, with all lists' passages.

        Args:
            queries: vectors of this process' queries.
            passages: vectors of the passages of this process' lists.
            everyone: vectors of the passages of all processes.
            own: this process' lists.
            batch: the whole batch.
        Returns:
            Two tensors of shape (own queries, list) or (own queries, list + passages of the batch).
        """
        scores = score_own_lists(self.model.scores, queries, passages, own)
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

        They are the terms of the lists and of a `BatchTeacher`, as changed by the functions of `BATCH_TERMS`.
        """
        terms = self.list_loss(state.scores, state.mask, state.own, state.batch)
        if state.teach:
            terms["in_batch"] = state.teach(state.score(state.queries, state.passages))
        for key, add in BATCH_TERMS.items():
            if getattr(self.train, key):
                terms = load(add)(self.train, state, terms)
        return terms
