"""SpaDE: one encoder weighs a passage's own tokens, another adds further terms."""

import copy
from pathlib import Path
from typing import Any, Literal, Self

from torch import Tensor

from tandem.config.representations import representation
from tandem.contrib.term_weights.options import SpadeTerms
from tandem.contrib.term_weights.splade import compute_in_rows, load_masked_lm
from tandem.contrib.term_weights.uhd import keep_winners
from tandem.contrib.term_weights.unicoil import UniCoil
from tandem.models.device import place_all, precision
from tandem.models.hub import save_encoder
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape
from tandem.models.tokens import Template, TokenTexts

EXPANSION = "expansion"


@representation("spade")
class Spade(UniCoil):
    """Two encoders of passages: one weighs a passage's own tokens, one adds others (SpaDE, Choi et al. 2022).

    p = (1 - α) w + α e, where w are the weights of uniCOIL and e is the expansion; each has an encoder of its own.

    e_j = max_i ReLU(logit_ij) over the tokens i, special ones included, that have j among their k likeliest entries of
    the vocabulary. Each token of a query has the weight 1, and no model reads queries.
    """

    objective = "contrib.term_weights.term_objectives:CoTraining"
    options: SpadeTerms
    part: Literal["weights", "expansion", "both"] = "both"

    @classmethod
    def _read(cls, query: Path, passage: Path, shape: DualShape) -> Self:
        """Return the model of a saved folder's `query` and `passage`.

        The encoder that training starts from is one folder with a masked language model.
        """
        model = super()._read(query, passage, shape)
        model.towers[EXPANSION] = load_masked_lm(
            passage if query == passage else passage.parent / EXPANSION
        )
        return model

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write the files that uniCOIL writes, and the encoder of the expansion next to them."""
        super().save(folder, tokenizer)
        save_encoder(self.towers[EXPANSION], tokenizer, folder / EXPANSION)

    def alone(self, part: Literal["weights", "expansion"]) -> Self:
        """Return a copy that shares the encoders and encodes passages by one part only: w or e."""
        model = copy.copy(self)
        model.part = part
        return model

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Return weights of texts, shape (texts, vocabulary), float32, not negative; see `DualEncoder.encode`."""
        texts = Ragged.of(texts)
        if side == "query" or self.part == "weights":
            return super().encode(side, texts, template, mode, multiple)

        def expand(part: dict[str, Tensor]) -> Tensor:
            with precision(mode):
                logits = self.towers[EXPANSION](**part).logits
            return keep_winners(logits, part["attention_mask"], self.options.terms)

        inputs = place_all(template.single_inputs(texts, side).to_tensors(multiple))
        share = self.options.share
        expansion = compute_in_rows(expand, inputs, self.dimension)
        if self.part == "expansion":
            return expansion
        return (1 - share) * super().encode(
            side, texts, template, mode, multiple
        ) + share * expansion
