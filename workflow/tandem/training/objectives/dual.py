"""The dual encoder's objective: softmax over the positive, hard negatives and in-batch negatives."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.losses import InBatchTeaching, Regularise
from tandem.config.training import DualTrain
from tandem.errors import UserError
from tandem.models.dual import DualEncoder
from tandem.models.ragged import Ids
from tandem.models.tokens import Tokens
from tandem.training.distributed import ALONE, World
from tandem.training.forward import Budget, Replayed, Score, Seeds, batch_texts, list_scores, pool_scores
from tandem.training.lists import Batch, Positives
from tandem.training.losses import distillation_loss, ramp, regulariser
from tandem.training.losses.listwise import listwise
from tandem.training.objectives import ListLoss, backward, mask_of


@dataclass(frozen=True)
class TeacherScores:
    """A teacher's scores of this process' queries in a batch, each query's positive first.

    Attributes:
        scores: already divided by `teacher_temperature`, shape (queries, 1 + all passages).
        columns: where these passages stand among all passages of the batch, same shape.
        mask: True where a passage counts: the positive, then every other one, or those of the other lists; same shape.
    """

    scores: Tensor
    columns: Tensor
    mask: Tensor


@dataclass(frozen=True)
class InBatch:
    """Vectors and scores of this process' queries among the passages of the whole batch, all with gradient.

    Attributes:
        queries: vectors of this process' queries, shape (queries, …).
        passages: vectors of all passages of the batch, all processes' lists in order, shape (all passages, …).
        own: scores of each query's own list, of no meaning where no passage stands, shape (queries, list).
        scores: `own`, followed in batch by the scores of all `passages`, shape (queries, list + more).
        mask: True where a passage counts, shape of `scores`.
        own_passages: vectors of this process' passages in the order of `batch.mask`, shape (passages, …).
        score: the model's `scores`, of encoded queries against encoded passages.
        gather: rows of all processes in order, with gradient, from this process' rows.
        teacher_scores: of the batch, if a teacher scores it.
    """

    queries: Tensor
    passages: Tensor
    own: Tensor
    scores: Tensor
    mask: Tensor
    batch: Batch
    own_passages: Tensor
    score: Score
    step: int
    gather: Callable[[Tensor], Tensor]
    teacher_scores: TeacherScores | None = None

    @property
    def own_positives(self) -> Tensor:
        """Vectors of the first passage of each list of this process, shape (queries, …)."""
        lengths = self.batch.mask.sum(1)
        return self.own_passages[torch.from_numpy(lengths.cumsum() - lengths).to(self.own.device)]


class Teacher:
    """Distillation in batch from a frozen dual encoder, which scores each batch as it is visited.

    Every query's positive, then either all other passages of the batch (TCT-ColBERT: Lin et al. 2021, KL) or those of
    the other lists (TAS-B: Hofstätter et al. 2021 §3.3, Margin-MSE: its own negative has a better teacher's score). No
    passage is left out as a known positive: the teacher says what it is worth.

    Args:
        model: the teacher, of any representation.
        tokens: the token ids that it reads, of the same dataset.
    """

    def __init__(
        self, model: DualEncoder, tokens: Tokens, params: InBatchTeaching, precision: str, budget: Budget
    ) -> None:
        self.model, self.tokens, self.params = model.requires_grad_(False).eval(), tokens, params
        self.precision, self.budget = precision, budget
        self.distillation = distillation_loss(params.loss, params)

    @torch.no_grad()
    def scores(self, own: Batch, batch: Batch, numbers: tuple[Ids, Ids], world: World) -> TeacherScores:
        """What the teacher says of this process' queries; each process encodes a share of the whole batch's passages.

        Args:
            numbers: in the whole batch, of this process' queries and of each passage's list.
        """
        (mine, lists), every = numbers, batch.passages[batch.mask]
        scores = pool_scores(self.model, self.tokens, own.queries, every, self.precision, self.budget, world)
        first = np.searchsorted(lists, mine)[:, None]
        places = np.broadcast_to(np.arange(len(lists)), (len(mine), len(lists)))
        others = places != first if self.params.own_negatives else lists != mine[:, None]
        columns = torch.from_numpy(np.concatenate([first, places], 1)).to(scores.device)
        mask = torch.from_numpy(np.concatenate([np.ones_like(first, bool), others], 1)).to(scores.device)
        return TeacherScores(scores.gather(1, columns) / self.params.teacher_temperature, columns, mask)

    def loss(self, state: InBatch) -> Tensor:
        """The weighted distillation, summed over queries."""
        if (teacher := state.teacher_scores) is None:
            raise ValueError("the teacher has not scored the batch")
        student = state.score(state.queries, state.passages).gather(1, teacher.columns)
        return self.params.weight * self.distillation(student, teacher.scores, teacher.mask)


@dataclass(eq=False)
class DualObjective:
    """What objectives of one dual encoder share.

    Attributes:
        positives: the known positives of the training queries.
        world: the processes that train together.
    """

    model: DualEncoder
    tokens: Tokens
    train: DualTrain
    positives: Positives
    budget: Budget
    world: World = ALONE

    def __post_init__(self) -> None:
        self.models = nn.ModuleDict({"dual": self.model})

    @torch.no_grad()
    def scores(self, batch: Batch, pool: Ids) -> dict[str, Tensor]:
        """See `Ranker`."""
        mode = self.train.precision
        return {"dual": pool_scores(self.model, self.tokens, batch.queries, pool, mode, self.budget, self.world)}


@dataclass(eq=False)
class Dual(DualObjective):
    """-log( e^{s(q,p+)} / Σ_p e^{s(q,p)} ) over a query's own list and, in batch, the other queries' passages.

    The loss of DPR, RocketQA and the DuReader-retrieval baseline (there without the mask: here a passage of the batch
    that is a known positive of a query is not its negative). With several processes the batch is that of all of them:
    RocketQA's cross-batch negatives (§3.2), here with the gradient of every query reaching every passage. With
    `matryoshka` it is the sum of the losses of the whole vectors and of their beginnings (Kusupati et al. 2022, Eq. 1).
    """

    teacher: Teacher | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        train, dimension = self.train, self.model.dimension
        if train.matryoshka and max(train.matryoshka) >= dimension:
            raise UserError(
                f"train.matryoshka is {max(train.matryoshka)}, but vectors have {dimension} numbers: name fewer"
            )
        self.list_loss = ListLoss(train)
        if (train.distil is not None and train.distil.in_batch is not None) != (self.teacher is not None):
            raise ValueError("train.distil.in_batch and its teacher belong together")

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. In-batch negatives bind the queries together, so all vectors meet in one loss."""
        own = self.world.share(batch)
        sides = self._texts(own, seeds)
        queries, passages = (side.values() for side in sides)
        everyone = self.world.gather(passages)
        by_teacher = self.teacher.scores(own, batch, self._numbers(batch), self.world) if self.teacher else None
        terms: dict[str, Tensor] = {}
        for dim in (None, *self.train.matryoshka):
            q, p, every = (self._cut(vectors, dim) for vectors in (queries, passages, everyone))
            for name, term in self.terms(self._state(q, p, every, own, batch, seeds.step, by_teacher)).items():
                terms[name] = terms[name] + term if name in terms else term
        values = backward(terms, len(batch.queries))
        for side in sides:
            side.backward()
        return values

    def _cut(self, vectors: Tensor, dim: int | None) -> Tensor:
        """The first `dim` numbers of vectors, of length 1 again where the whole ones are; None: the whole ones."""
        if dim is None:
            return vectors
        return nn.functional.normalize(vectors[..., :dim], dim=-1) if self.model.normalize else vectors[..., :dim]

    def _numbers(self, batch: Batch) -> tuple[Ids, Ids]:
        """The numbers in the batch of this process' queries, and of each passage's list."""
        count = len(batch.queries)
        return np.arange(count)[self.world.slice(count)], np.argwhere(batch.mask)[:, 0]

    def _state(
        self,
        queries: Tensor,
        passages: Tensor,
        everyone: Tensor,
        own: Batch,
        batch: Batch,
        step: int,
        by_teacher: TeacherScores | None,
    ) -> InBatch:
        """What the terms of the loss are made of; `everyone` are the passages' vectors of all processes."""
        scores, mask = self.scored(queries, passages, everyone, own, batch)
        lists = scores[:, : batch.passages.shape[1]]
        options = (self.model.scores, step, self.world.gather, by_teacher)
        return InBatch(queries, everyone, lists, scores, mask, own, passages, *options)

    def scored(
        self, queries: Tensor, passages: Tensor, everyone: Tensor, own: Batch, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """Scores and mask over each query's own list, followed in batch by all lists' passages.

        Args:
            batch: the whole batch.
        Returns:
            Two tensors of shape (own queries, list) or (own queries, list + passages of the batch).
        """
        scores = list_scores(self.model.scores, queries, passages, own)
        mask = mask_of(own, scores)
        if not self.train.in_batch:
            return scores, mask
        mine, lists = self._numbers(batch)
        negative = (lists != mine[:, None]) & ~self.positives.known(own.queries, batch.passages[batch.mask])
        crossed = self.model.scores(queries, everyone)
        return torch.cat([scores, crossed], 1), torch.cat([mask, torch.from_numpy(negative).to(mask.device)], 1)

    def terms(self, state: InBatch) -> dict[str, Tensor]:
        """The loss's terms by name, each a sum over this process' queries.

        L_Q = `ListLoss`, and a `Teacher`'s loss in batch; with `passage_centric` α PAIR's L = (1 - α) L_Q + α L_P;
        with `regularise` also λ times a regulariser of each side's vectors.
        """
        terms = self.list_loss(state.scores, state.mask, state.own, state.batch)
        if self.teacher:
            terms["in_batch"] = self.teacher.loss(state)
        alpha = self.train.passage_centric
        if alpha:
            terms = {name: (1 - alpha) * term for name, term in terms.items()}
            terms["passage"] = alpha * passage_centric(state)
        if self.train.regularise:
            terms["regularise"] = regularised(self.train.regularise, state)
        return terms

    def _texts(self, batch: Batch, seeds: Seeds) -> tuple[Replayed, Replayed]:
        return batch_texts(self.model, self.tokens, batch, self.train.precision, self.budget, seeds)


def passage_centric(state: InBatch) -> Tensor:
    """-log( e^{s(p+,q)} / (e^{s(p+,q)} + Σ_{p-} e^{s(p+,p-)}) ), summed over queries.

    L_P of PAIR (Ren et al. 2021): the positive is nearer to its query than to the negatives. The negatives p- are those
    of L_Q here: the list's own and, in batch, the other lists' passages that are no known positive of the query. PAIR's
    code sets the positive against negative passages and the batch's queries, with one encoder for both sides.

    Returns:
        Scalar, in nats.
    """
    positives = state.own_positives
    among = list_scores(state.score, positives, state.own_passages, state.batch)
    scores = torch.cat([state.own[:, :1], among[:, 1:]], 1)
    if state.scores.shape[1] > scores.shape[1]:
        scores = torch.cat([scores, state.score(positives, state.passages)], 1)
    return listwise(scores, state.mask)


def regularised(params: Regularise, state: InBatch) -> Tensor:
    """Σ λ R(vectors) over both sides and their regularisers, over the batch's texts of all processes.

    A regulariser is no sum over queries: it is multiplied by this process' number of queries, so that the caller's
    division by the batch's number of queries and the sum over processes count it once. A passage that stands in two
    lists counts twice.

    Args:
        params: the weights λ of each side by the regulariser's name, and how many steps they grow.
    Returns:
        Scalar.
    """
    total = state.queries.new_zeros(())
    for side, side_weights in (("query", params.query), ("passage", params.passage)):
        weights = {name: weight for name, weight in side_weights or () if weight}
        if weights:
            vectors = state.passages if side == "passage" else state.gather(state.queries)
            total = total + torch.stack([w * regulariser[name](vectors) for name, w in weights.items()]).sum()
    return total * ramp(state.step, params.ramp) * len(state.batch.queries)
