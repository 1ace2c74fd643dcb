"""Train models that weigh terms.

DeepCT's query term recall, the terms that SparTerm's gate adds, and the co-training of SpaDE's two encoders.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from tandem.contrib.term_weights.options import EXPANSION_TERMS
from tandem.contrib.term_weights.spade import Spade
from tandem.contrib.term_weights.sparterm import SparTerm
from tandem.contrib.term_weights.static_queries import locate_terms
from tandem.contrib.term_weights.unicoil import UniCoil
from tandem.errors import UserError
from tandem.models.ragged import Ids, Ragged
from tandem.models.tokens import count_title_tokens
from tandem.training.forward import MULTIPLE, Replayed, Seeds, score_own_lists
from tandem.training.lists import Batch
from tandem.training.objectives import apply_gradient, make_mask
from tandem.training.objectives.dual import (
    BatchDualObjective,
    BatchTeacher,
    DualObjective,
    InBatch,
    QueryCopies,
)

# The weight λ of the terms that a gate should not add, which are nearly the whole vocabulary.
_ABSENT_WEIGHT = 1e-3


class LearnsQueries(DualObjective):
    """Base of the objectives that train the positive of each list to predict the terms of its training queries.

    Attributes:
        loss: the loss's name.
    """

    loss: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        queries, passages = self.positives.list_pairs()
        by_passage = np.argsort(passages, kind="stable")
        self.queries = queries[by_passage]
        self.passages = passages[by_passage]

    def list_queries(self, passage: int) -> list[Ids]:
        """Return the token ids of each training query to which a passage is relevant; `passage` is its row."""
        first, last = np.searchsorted(self.passages, (passage, passage + 1))
        return [self.tokens.queries[int(row)] for row in self.queries[first:last]]

    @abstractmethod
    def compute_losses(self, rows: Ids, texts: Ragged) -> Tensor:
        """Return the loss of each passage, shape (passages,), from their rows and token ids."""

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. The loss is a sum over passages."""
        rows = self.world.share(batch).passages[:, 0]
        texts = self.tokens.passages.take(rows)
        losses = Replayed(
            lambda part: self.compute_losses(rows[part], texts.take(part)),
            np.diff(texts.offsets) + self.tokens.template.extra[0],
            next(self.model.parameters()).new_zeros(0),
            self.budget,
            seeds,
        )
        values = apply_gradient({self.loss: losses.values().sum()}, len(batch.queries))
        losses.backward()
        return values


class TermRecall(LearnsQueries):
    """(1/n) Σ_i (ŷ_i - QTR(t_i, p))² over the n tokens t_i of each list's positive p, averaged over lists.

    QTR(t, p), query term recall, is a share of the training queries to which p is relevant: those that contain the
    token t (DeepCT: Dai and Callan 2019). ŷ_i = W h_i + b is the value before the ReLU, so that values below 0 learn
    too. DeepCT's code averages over all tokens of a batch, so that longer passages weigh more; and a word's first piece
    represents the word, while each piece is a term here. The lists' negatives are not read.
    """

    model: UniCoil
    loss = "term_recall"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.model, UniCoil):
            raise UserError("train.loss is term_recall, which needs the representation unicoil")

    def compute_losses(self, rows: Ids, texts: Ragged) -> Tensor:
        """Return the mean squared error of each passage's tokens; 0 for a passage without tokens."""
        options = self.tokens.template, self.train.precision, MULTIPLE
        _, weights, own = self.model.scalars("passage", texts, *options)
        recall = np.concatenate([self.recall(int(row)) for row in rows])
        target = torch.zeros_like(weights).masked_scatter(own, torch.from_numpy(recall).to(weights))
        errors = (weights - target).square() * own
        return errors.sum(1) / own.sum(1).clamp(min=1)

    def recall(self, passage: int) -> Ids:
        """Return QTR of each token of the passage in this row; shape (tokens,), without special tokens."""
        queries = self.list_queries(passage)
        own = self.tokens.passages[passage]
        separators = self.tokens.template.separators("passage")
        if separators:
            title = int(count_title_tokens(self.tokens.passages)[passage])
            own = np.delete(own, slice(title, title + len(separators)))
        shares: Ids = np.mean([np.isin(own, query) for query in queries], axis=0)
        return shares


class ExpansionTerms(LearnsQueries):
    """-(Σ_{j ∈ T} log G_j + λ Σ_{j ∉ T} log(1 - G_j)) of each list's positive p, averaged over lists.

    G_j = σ(max_i gate_logit_ij) over the tokens i of p; T are the terms of the training queries to which p is relevant
    (SparTerm: Bai et al. 2020, "passage to query", the gate's own loss). Terms of p itself are in neither sum, since
    the gate lets them through anyway. λ is .001, since nearly all of the vocabulary is not in T. Only the gate learns,
    and the lists' negatives are not read.
    """

    model: SparTerm
    loss = EXPANSION_TERMS

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.model, SparTerm):
            raise UserError(
                f"train.loss is {EXPANSION_TERMS}, which needs the representation sparterm"
            )
        self.model.learn_gate(True)

    def compute_losses(self, rows: Ids, texts: Ragged) -> Tensor:
        """Return each passage's loss."""
        options = self.tokens.template, self.train.precision, MULTIPLE
        logits = self.model.gate_logits(texts, *options)
        queries = [np.concatenate(self.list_queries(int(row))) for row in rows]
        own, asked = (mark_terms(terms, logits) for terms in (texts, Ragged.of(queries)))
        # -log σ(x) = softplus(-x), and -log(1 - σ(x)) = softplus(x)
        added = nn.functional.softplus(-logits) * (asked & ~own)
        absent = nn.functional.softplus(logits) * ~(asked | own)
        return (added + _ABSENT_WEIGHT * absent).sum(1)


def mark_terms(texts: Ragged, like: Tensor) -> Tensor:
    """Return which terms each text has, of the shape and on the device of `like`: (texts, vocabulary)."""
    has = torch.zeros_like(like, dtype=torch.bool)
    has[locate_terms(texts, like.device)] = True
    return has


@dataclass(eq=False)
class CoTraining(DualObjective):
    """L = L_w + L_e, the losses by passages' weights w and by their expansion e (SpaDE: Choi et al. 2022).

    Each is the loss of `BatchDualObjective`.

    With `co_training`, each part learns only from the lists that the other part knows least, a share of a batch's
    lists: L_w from those where e's -log( e^{s(q,p+)} / Σ_p e^{s(q,p)} ) over the list is largest, and L_e from those
    where w's is largest. Without `co_training`, both learn from all lists.
    """

    model: Spade
    teacher: BatchTeacher | None = None
    broken: QueryCopies | None = None  # the representation does not use `train.self_teaching`

    def __post_init__(self) -> None:
        super().__post_init__()
        options = (self.tokens, self.train, self.positives, self.budget, self.world, self.teacher)
        self.weights = BatchDualObjective(self.model.alone("weights"), *options)
        self.expansion = Expanding(self.model.alone("expansion"), *options)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. The result contains `loss`, L_w as `weights`, and the terms of L_e."""
        by_expansion = self.hardest(self.expansion, batch)
        by_weights = self.hardest(self.weights, batch)
        weights = self.weights.backward(by_expansion, seeds.child(0))["loss"]
        values = self.expansion.backward(by_weights, seeds.child(1))
        return {**values, "loss": values["loss"] + weights, "weights": weights}

    @torch.no_grad()
    def hardest(self, judge: BatchDualObjective, batch: Batch) -> Batch:
        """Return the lists of a batch with the largest loss by one of the encoders, without dropout.

        Without `co_training`, return all lists.
        """
        if not self.train.co_training:
            return batch
        self.models.eval()
        own = self.world.share(batch)
        queries, passages = (side.values() for side in judge.vectors.encode_batch(own, Seeds((0,))))
        scores = score_own_lists(judge.model.scores, queries, passages, own)
        scores = scores.masked_fill(~make_mask(own, scores), float("-inf"))
        losses = self.world.gather(-scores.log_softmax(1)[:, 0])
        self.models.train()
        count = max(1, round(self.train.co_training * len(losses)))
        hardest_first = (-losses).cpu().numpy().argsort(kind="stable")
        return batch.select(np.sort(hardest_first[:count]))


class Expanding(BatchDualObjective):
    """The loss of a passage's expansion, which also learns to predict the terms of its query."""

    def terms(self, state: InBatch) -> dict[str, Tensor]:
        """Add -Σ_{t ∈ q} log( e^{e(p+)_t} / Σ_j e^{e(p+)_j} ), summed over queries, to `BatchDualObjective`'s."""
        likely = state.own_positives.log_softmax(1)
        terms = super().terms(state)
        terms["query_terms"] = -(state.queries * likely).sum()
        return terms
