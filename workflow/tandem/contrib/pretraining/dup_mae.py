"""DupMAE, or RetroMAE v2 (Xiao et al. 2023)."""

import numpy as np
import torch
from torch import Tensor

from tandem.contrib.pretraining.masking import IGNORED
from tandem.contrib.pretraining.objectives import EnhancedDecoding
from tandem.contrib.pretraining.options import DupMaeTrain
from tandem.models.ragged import Ragged


def bag_of_words_loss(highest: Tensor, labels: Tensor) -> Tensor:
    """-log softmax(v)_t averaged over the distinct tokens t of a passage, with v_j = max_i logits_ij over its tokens.

    Args:
        highest: v, shape (passages, vocabulary).
        labels: the passage's token at each position, `IGNORED` where it has none, shape (passages, length).
    Returns:
        Shape (passages,), in nats; 0 for a passage without tokens.
    """
    present = labels != IGNORED
    words = torch.zeros_like(highest, dtype=torch.bool)
    rows = present.nonzero()[:, 0]
    words[rows, labels[present]] = True
    losses = -highest.log_softmax(-1).masked_fill(~words, 0.0).sum(1)
    return losses / words.sum(1).clamp(min=1)


class DupMae(EnhancedDecoding[DupMaeTrain]):
    """L = L_mlm + L_dec + `bag_weight` · L_bow (Xiao et al. 2023, DupMAE).

    The first two are RetroMAE's (`retromae`). L_bow (`bag_of_words_loss`) restores the set of the passage's tokens from
    the largest logit of each term over the token states. So the token states, which in RetroMAE only predict masked
    tokens, learn what the passage is about. The logits come from the head that predicts hidden tokens, as in the
    authors' code. Only the vector is fine-tuned and searched afterwards; the paper appends a second vector, made from
    L_bow's logits.
    """

    name, names = "dup_mae", ("loss", "mlm", "decoder", "bag")

    def further_terms(self, hidden: Tensor, texts: Ragged) -> dict[str, Tensor]:
        """Return the loss of the bag of words."""
        labels = self.align(Ragged(texts.ids.astype(np.int64), texts.offsets), hidden)
        embeddings = self.encoder.get_input_embeddings().weight
        highest = self.head.find_highest(hidden, labels != IGNORED, embeddings)
        losses = bag_of_words_loss(highest, labels)
        return {"bag": self.train.bag_weight * losses.sum()}
