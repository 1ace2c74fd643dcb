"""Poly-encoders: several vectors of a query, one of a passage."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.representations import representation
from tandem.contrib.late_interaction.options import PolyCodes
from tandem.extras.own_tokens import OwnTokens
from tandem.models.device import place_array
from tandem.models.ragged import Ragged
from tandem.models.saving import TOKEN_VECTORS, Dense
from tandem.models.tokens import Template, TokenTexts


@representation("poly")
class PolyEncoder(OwnTokens):
    """Encode a query as several vectors, which the single vector of a passage weighs (Humeau et al. 2020).

    s(q, p) = y · E(p) with y = Σ_i softmax_i(y_i · E(p)) y_i; E(p) is the state of the passage's first token.

    y_i = Σ_j softmax_j(c_i · h_j) h_j over all tokens j of the query, special ones included. The m codes c_i are
    learned; they are the rows of a linear layer without a bias.
    """

    reads = TOKEN_VECTORS
    options: PolyCodes

    def new_layers(self, hidden: int) -> list[Dense]:
        """Return the layer of a query's codes; the passage's side has it, too, but does not use it."""
        return [
            Dense(nn.Linear(hidden, self.options.codes, bias=False), nn.Identity(), TOKEN_VECTORS)
        ]

    @property
    def full_dimension(self) -> int:
        """Return how many numbers a vector has: as many as the encoder's states."""
        tower: Any = self.towers["passage"]
        return int(tower.config.hidden_size)

    def shape(self, side: str, longest: int) -> tuple[int, ...]:
        """Return the shape of a text's vectors: a passage has one vector, a query one for each code."""
        return (self.options.codes, self.dimension) if side == "query" else (self.dimension,)

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Return vectors of passages, shape (texts, dimension), or queries, (texts, codes, dimension), float32."""
        texts = Ragged.of(texts)
        states, _, _ = self.states(side, texts, template, mode, multiple)
        if side == "passage":
            return states[:, 0]
        lengths = place_array(np.diff(texts.offsets)) + template.extra[0]
        padding = (
            torch.arange(states.shape[1], device=states.device) >= lengths.clamp(min=1)[:, None]
        )
        (codes,) = self.layers(side)
        attention: Tensor = codes(states).masked_fill(padding[..., None], float("-inf")).softmax(1)
        return attention.transpose(1, 2) @ states

    def scores(self, queries: Tensor, passages: Tensor) -> Tensor:
        """Return s(q, p) divided by this model's temperature; passages in the place of queries have one vector each."""
        codes = queries if queries.dim() > 2 else queries[:, None]
        products = torch.einsum(
            "qmd,qpd->qpm" if passages.dim() > 2 else "qmd,pd->qpm", codes, passages
        )
        return (products.softmax(-1) * products).sum(-1) / self.temperature
