"""SparTerm: weights of the terms that a gate lets through, from a head that predicts tokens."""

import math
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from tandem.config.representations import representation
from tandem.contrib.term_weights.options import GatedTerms
from tandem.contrib.term_weights.splade import SparseEncoder, load_masked_lm, take_highest
from tandem.contrib.term_weights.static_queries import locate_terms
from tandem.models.device import place_all, precision
from tandem.models.hub import save_encoder
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape
from tandem.models.tokens import Template, TokenTexts

GATE = "gate"
# A term that is likelier than this is added; the threshold is the logit of this probability.
_LIKELY = 0.7
_THRESHOLD = math.log(_LIKELY / (1 - _LIKELY))


@representation("sparterm")
class SparTerm(SparseEncoder):
    """SPLADE's forerunner, which weighs the terms that a gate lets through (Bai et al. 2020).

    w_j = g_j · Σ_i ReLU(logit_ij) over the text's tokens i, special ones included. The gate g_j is 0 or 1.

    With `gate: words`, it is 1 for the text's own terms ("literal-only"): a weight is the importance of a word in its
    context, and no word is added. With `gate: learned`, it is also 1 for the terms j that a second encoder adds to a
    passage ("expansion-enhanced"): those with σ(max_i gate_logit_ij) > .7. Only the loss `expansion_terms` trains that
    encoder, and it trains nothing else. Queries have only their own terms.

    No module of sentence-transformers has a gate, so that only transformers can load the folders.
    """

    options: GatedTerms

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return what `save` wrote."""
        model = super().load(folder)
        model._add_gate(folder / GATE)
        return model

    def _prepare_start(self, folder: Path, shape: DualShape) -> None:
        """Start the gate from the same folder as the encoder."""
        self._add_gate(folder)

    def _add_gate(self, folder: Path) -> None:
        """Load the encoder and head of a learned gate from a folder, with frozen weights."""
        if self.options.gate == "learned":
            self.towers[GATE] = load_masked_lm(folder)
            self.learn_gate(False)

    def learn_gate(self, learns: bool) -> None:
        """Train only the gate (True), or everything except the gate (False)."""
        for name, tower in self.towers.items():
            tower.requires_grad_(learns == (name == GATE))

    def train(self, mode: bool = True) -> Self:
        """Switch between training and evaluation; a gate that does not learn stays in evaluation, without dropout."""
        super().train(mode)
        if GATE in self.towers and not next(self.towers[GATE].parameters()).requires_grad:
            self.towers[GATE].eval()
        return self

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write the files that SPLADE writes, and the encoder of a learned gate next to them."""
        super().save(folder, tokenizer)
        if GATE in self.towers:
            save_encoder(self.towers[GATE], tokenizer, folder / GATE)

    def choose_terms(
        self, weights: Tensor, side: str, texts: Ragged, inputs: dict[str, Tensor], mode: str
    ) -> Tensor:
        """Return the weights of the terms that the gate lets through."""
        gate = torch.zeros_like(weights)
        if side == "passage" and GATE in self.towers:
            with torch.no_grad():
                highest = self.weigh(GATE, inputs, mode, "max", "none")
            gate = (highest > _THRESHOLD).to(weights)
        gate[locate_terms(texts, weights.device)] = 1.0
        return weights * gate

    def gate_logits(
        self, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Return max_i gate_logit_ij of passages, shape (texts, vocabulary), float32; see `encode`."""
        inputs = place_all(template.single_inputs(texts, "passage").to_tensors(multiple))
        with precision(mode):
            logits = self.towers[GATE](**inputs).logits
        return take_highest(logits, inputs["attention_mask"])

    def describe(self, folder: Path, hidden: int, shape: DualShape) -> None:
        """Write nothing."""

    def describe_both(self, folder: Path, shape: DualShape) -> None:
        """Write nothing."""
