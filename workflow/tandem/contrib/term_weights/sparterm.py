"""SparTerm: weights of a text's own terms, by a head that predicts tokens."""

from pathlib import Path

import torch
from torch import Tensor

from tandem.config.representations import representation
from tandem.contrib.term_weights.splade import SparseEncoder
from tandem.contrib.term_weights.static_queries import locate_terms
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape
from tandem.models.tokens import TokenTexts


@representation("sparterm")
class SparTerm(SparseEncoder):
    """SPLADE's forerunner (Bai et al. 2020), with the gate that the text itself is ("literal-only").

    w_j = g_j · Σ_i ReLU(logit_ij) over the text's tokens i, special ones included; the gate g_j is 1 for a term of the
    text, else 0. So a weight tells how much a word counts in its context, and no word is added. The paper's other gate,
    an encoder of its own that has learned which words are asked for, is not here.

    No module of sentence-transformers has a gate: the folders are transformers' alone.
    """

    def choose_terms(self, weights: Tensor, texts: TokenTexts) -> Tensor:
        """Return the weights of the terms that a text has."""
        gate = torch.zeros_like(weights)
        gate[locate_terms(Ragged.of(texts), weights.device)] = 1.0
        return weights * gate

    def describe(self, folder: Path, hidden: int, shape: DualShape) -> None:
        """Write nothing."""

    def describe_both(self, folder: Path, shape: DualShape) -> None:
        """Write nothing."""
