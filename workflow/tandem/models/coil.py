"""COIL: a token's vector meets those of the same token alone, an exact match in context (Gao, Dai and Callan 2021)."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.representations import CoilVectors, representation
from tandem.models.dense import TOKENS, Dense
from tandem.models.multi import max_sim
from tandem.models.ragged import DIGIT, Ids, Ragged
from tandem.models.tokens import Template, Texts
from tandem.models.unicoil import OwnTokens


@representation("coil")
class Coil(OwnTokens):
    """s(q, p) = E(q) · E(p) + Σ_i max_j v_i · v_j, over the passage's tokens j that are the query's token i.

    v = W h + b of a text's own tokens, without special ones, and E the same by another layer of the first token, [CLS];
    COIL-tok has no E. A query's token that the passage lacks adds nothing. (The authors' code also lets no token add
    less than 0.)

    A text is rows of `dim` numbers, each with its token's id in two more (see `token_ids`). E is cut into rows, too,
    each with an id of its own beyond the vocabulary, so that like pieces meet: their products add up to E(q) · E(p).
    """

    reads, first_dense = TOKENS, 1
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
        counts: Ids = np.maximum(np.diff(texts.offsets) + self.options.pieces, 1)
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
