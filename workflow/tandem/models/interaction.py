"""Other interactions of a query's tokens with a passage than the nearest token: COIL and poly-encoders."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.representations import CoilVectors, PolyCodes, representation
from tandem.models.device import place
from tandem.models.multi import max_sim
from tandem.models.ragged import DIGIT, Ids, Ragged
from tandem.models.saving import TOKENS, Dense
from tandem.models.token_weights import OwnTokens
from tandem.models.tokens import Template, Texts


@representation("coil")
class Coil(OwnTokens):
    """A token's vector meets those of the same token alone, an exact match in context (Gao, Dai and Callan 2021).

    s(q, p) = E(q) · E(p) + Σ_i max_j v_i · v_j, over the passage's tokens j that are the query's token i.

    v = W h + b of a text's own tokens, without special ones, and E the same by another layer of the first token, [CLS];
    COIL-tok has no E. A query's token that the passage lacks adds nothing. (The authors' code also lets no token add
    less than 0.)

    A text is rows of `dim` numbers, each with its token's id in two more (see `token_ids`). E is cut into rows, too,
    each with an id of its own beyond the vocabulary, so that like pieces meet: their products add up to E(q) · E(p).
    """

    reads = TOKENS
    options: CoilVectors

    def new_layers(self, hidden: int) -> list[Dense]:
        """The layer of tokens' vectors, and that of E where there is one."""
        sizes = filter(None, [self.options.dim, self.options.cls_dim])
        return [Dense(nn.Linear(hidden, size), nn.Identity(), TOKENS) for size in sizes]

    @property
    def dimension(self) -> int:
        """How many numbers a row has."""
        return self.options.dim + 2

    def shape(self, side: str, longest: int) -> tuple[int, ...]:
        """Rows and numbers of a row."""
        return (longest + self.options.pieces, self.dimension)

    def counts(self, side: str, texts: Ragged, template: Template) -> Ids:
        """How many rows each text has, without computing them, shape (texts,)."""
        special = np.concatenate([[0], np.isin(texts.ids, template.separators(side)).cumsum()])
        own = np.diff(texts.offsets) - np.diff(special[texts.offsets])
        counts: Ids = np.maximum(own + self.options.pieces, 1)
        return counts

    def encode(self, side: str, texts: Texts, template: Template, mode: str, multiple: int = 1) -> Tensor:
        """Rows of texts, shape (texts, rows, dimension), float32: zeros where no token counts.

        Without E a text that has no tokens of its own has a row for the first special one: none is nothing at all.
        """
        texts = Ragged.of(texts)
        states, ids, own = self.states(side, texts, template, mode, multiple)
        if not self.options.pieces:
            own[:, 0] |= ~own.any(1)
        width = max(1, len(template.single[0]) + int(np.diff(texts.offsets).max(initial=0)))
        layer, *whole = self.layers(side)
        rows = (_with_ids(layer(states), ids + 1) * own[..., None])[:, :width]
        if not whole:
            return rows
        vectors = whole[0](states[:, 0])
        size, pieces = self.options.dim, self.options.pieces
        vectors = nn.functional.pad(vectors, (0, pieces * size - vectors.shape[1])).unflatten(1, (pieces, size))
        tower: Any = self.towers[side]
        numbers = tower.config.vocab_size + 1 + torch.arange(pieces, device=ids.device)
        return torch.cat([_with_ids(vectors, numbers.expand(len(ids), -1)), rows], 1)

    def scores(self, queries: Tensor, passages: Tensor) -> Tensor:
        """`max_sim` of the same tokens alone, over this model's temperature."""
        return max_sim(queries, passages, same_token=True) / self.temperature


def _with_ids(vectors: Tensor, ids: Tensor) -> Tensor:
    """Vectors, shape (texts, rows, dim), with ids from 1 in two more numbers; see `token_ids`."""
    return torch.cat([vectors, torch.stack([ids // DIGIT, ids % DIGIT], -1).to(vectors)], -1)


@representation("poly")
class PolyEncoder(OwnTokens):
    """Several vectors of a query, which a passage's one vector weighs (Humeau et al. 2020).

    s(q, p) = y · E(p) with y = Σ_i softmax_i(y_i · E(p)) y_i, and E(p) the state of the passage's first token.

    y_i = Σ_j softmax_j(c_i · h_j) h_j, of all tokens j of the query, special ones included, by m codes c_i, which are
    learned: the rows of a linear layer without a bias.
    """

    reads = TOKENS
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
