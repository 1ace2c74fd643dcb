"""SpaDE: two encoders of passages; one weighs a passage's own tokens, one adds others (Choi et al. 2022)."""

import copy
from pathlib import Path
from typing import Any, Literal, Self

from torch import Tensor

from tandem.config.representations import SpadeTerms, representation
from tandem.models.device import place, precision
from tandem.models.hub import save_encoder
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape
from tandem.models.sparse import in_rows, load_masked_lm, winners
from tandem.models.tokens import Template, Texts
from tandem.models.unicoil import UniCoil

EXPANSION = "expansion"


@representation("spade")
class Spade(UniCoil):
    """p = (1 - α) w + α e, of the weights w of uniCOIL and an expansion e, which have an encoder each.

    e_j = max_i ReLU(logit_ij) over the tokens i, special ones included, of which j is among the k likeliest entries of
    the vocabulary. A query weighs 1 for each of its tokens, and no model reads it.
    """

    options: SpadeTerms
    part: Literal["weights", "expansion", "both"] = "both"

    @classmethod
    def _read(cls, query: Path, passage: Path, shape: DualShape) -> Self:
        """The model of a saved folder's `query` and `passage`; a start is one folder with a masked language model."""
        model = super()._read(query, passage, shape)
        model.towers[EXPANSION] = load_masked_lm(passage if query == passage else passage.parent / EXPANSION)
        return model

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write what uniCOIL does, and the encoder of the expansion beside it."""
        super().save(folder, tokenizer)
        save_encoder(self.towers[EXPANSION], tokenizer, folder / EXPANSION)

    def alone(self, part: Literal["weights", "expansion"]) -> Self:
        """The same model, with the same encoders, of whose passages one part is left: w or e."""
        model = copy.copy(self)
        model.part = part
        return model

    def encode(self, side: str, texts: Texts, template: Template, mode: str, multiple: int = 1) -> Tensor:
        """Weights of texts, shape (texts, vocabulary), float32, not negative; see `DualEncoder.encode`."""
        texts, options = Ragged.of(texts), (template, mode, multiple)
        if side == "query" or self.part == "weights":
            return super().encode(side, texts, *options)
        expansion = self._expansion(texts, *options)
        if self.part == "expansion":
            return expansion
        share = self.options.share
        return (1 - share) * super().encode(side, texts, *options) + share * expansion

    def _expansion(self, texts: Ragged, template: Template, mode: str, multiple: int) -> Tensor:
        def expand(part: dict[str, Tensor]) -> Tensor:
            with precision(mode):
                logits = self.towers[EXPANSION](**part).logits
            return winners(logits, part["attention_mask"], self.options.terms)

        inputs = template.single_inputs(texts, template.titled).padded(multiple)
        return in_rows(expand, {key: place(row) for key, row in inputs.items()}, self.dimension)
