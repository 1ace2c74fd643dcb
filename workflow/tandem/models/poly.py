"""Poly-encoders: several vectors of a query, which a passage's one vector weighs (Humeau et al. 2020)."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.representations import PolyCodes, representation
from tandem.models.dense import TOKENS, Dense
from tandem.models.device import place
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template, Texts
from tandem.models.unicoil import OwnTokens


@representation("poly")
class PolyEncoder(OwnTokens):
    """s(q, p) = y · E(p) with y = Σ_i softmax_i(y_i · E(p)) y_i, and E(p) the state of the passage's first token.

    y_i = Σ_j softmax_j(c_i · h_j) h_j, of all tokens j of the query, special ones included, by m codes c_i, which are
    learned: the rows of a linear layer without a bias.
    """

    reads, first_dense = TOKENS, 1
    options: PolyCodes

    def new_layers(self, hidden: int) -> list[Dense]:
        """The codes; of a passage there are the same, of no use."""
        return [Dense(nn.Linear(hidden, self.options.codes, bias=False), nn.Identity(), TOKENS)]

    @property
    def whole(self) -> int:
        """How many numbers a vector has: those of a state."""
        tower: Any = self.towers["passage"]
        return int(tower.config.hidden_size)

    def shape(self, side: str, longest: int) -> tuple[int, ...]:
        """A passage is one vector, a query one for each code."""
        return (self.options.codes, self.dimension) if side == "query" else (self.dimension,)

    def encode(self, side: str, texts: Texts, template: Template, mode: str, multiple: int = 1) -> Tensor:
        """Vectors of texts, shape (texts, dimension) of passages and (texts, codes, dimension) of queries, float32."""
        texts = Ragged.of(texts)
        states, _, _ = self.states(side, texts, template, mode, multiple)
        if side == "passage":
            return states[:, 0]
        lengths = place(torch.from_numpy(np.diff(texts.offsets))) + template.extra[0]
        padding = torch.arange(states.shape[1], device=states.device) >= lengths.clamp(min=1)[:, None]
        (codes,) = self.layers(side)
        attention: Tensor = codes(states).masked_fill(padding[..., None], float("-inf")).softmax(1)
        return attention.transpose(1, 2) @ states

    def scores(self, queries: Tensor, passages: Tensor) -> Tensor:
        """s(q, p) over this model's temperature; a passage in a query's place has one vector."""
        codes = queries if queries.dim() > 2 else queries[:, None]
        products = torch.einsum("qmd,qpd->qpm" if passages.dim() > 2 else "qmd,pd->qpm", codes, passages)
        return (products.softmax(-1) * products).sum(-1) / self.temperature
