"""DeepCT's objective: the weight of each token of a passage learns how many of the passage's queries have it."""

import numpy as np
import torch
from torch import Tensor

from tandem.errors import UserError
from tandem.models.ragged import Ids
from tandem.models.unicoil import UniCoil
from tandem.training.forward import MULTIPLE, Replayed, Seeds
from tandem.training.lists import Batch
from tandem.training.objectives import backward
from tandem.training.objectives.dual import DualObjective


class TermRecall(DualObjective):
    """(1/n) Σ_i (ŷ_i - QTR(t_i, p))² over the n tokens t_i of each list's positive p, averaged over lists.

    QTR(t, p), query term recall, is the share of the training queries to which p is relevant that have the token t
    (DeepCT: Dai and Callan 2019). ŷ_i = W h_i + b stands before the ReLU, so that what is below 0 learns too. DeepCT's
    code averages over all tokens of a batch, where longer passages weigh more, and a word's first piece stands for the
    word; here each piece is a term. The lists' negatives are not read.
    """

    model: UniCoil

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.model, UniCoil):
            raise UserError("train.loss is term_recall, which needs the representation unicoil")
        keys = self.positives.keys
        order = np.argsort(keys & 0xFFFFFFFF, kind="stable")
        self.queries, self.passages = keys[order] >> 32, keys[order] & 0xFFFFFFFF

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. The loss falls apart per passage."""
        errors = self._errors(self.world.share(batch).passages[:, 0], seeds)
        values = backward({"term_recall": errors.values().sum()}, len(batch.queries))
        errors.backward()
        return values

    def recall(self, passage: int) -> Ids:
        """QTR of each token of a passage, given its row; shape (tokens,)."""
        first, last = np.searchsorted(self.passages, (passage, passage + 1))
        queries = [self.tokens.queries[int(row)] for row in self.queries[first:last]]
        own = self.tokens.passages[passage]
        shares: Ids = np.mean([np.isin(own, query) for query in queries], axis=0)
        return shares

    def _errors(self, rows: Ids, seeds: Seeds) -> Replayed:
        """The mean squared error of each passage's tokens; 0 of a passage without any."""
        texts = self.tokens.passages.take(rows)

        def compute(part: Ids) -> Tensor:
            options = self.tokens.template, self.train.precision, MULTIPLE
            _, weights, own = self.model.scalars("passage", texts.take(part), *options)
            recall = np.concatenate([self.recall(int(row)) for row in rows[part]])
            target = torch.zeros_like(weights).masked_scatter(own, torch.from_numpy(recall).to(weights))
            return ((weights - target).square() * own).sum(1) / own.sum(1).clamp(min=1)

        empty = next(self.model.parameters()).new_zeros(0)
        return Replayed(compute, np.diff(texts.offsets) + self.tokens.template.extra[0], empty, self.budget, seeds)
