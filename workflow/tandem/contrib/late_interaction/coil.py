"""COIL: compare a token's vector only with those of the same token, and add the score of the whole texts' vectors."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.representations import representation
from tandem.contrib.late_interaction.options import ID_NUMBERS, CoilVectors
from tandem.contrib.late_interaction.same_token import DIGIT
from tandem.contrib.late_interaction.token_scores import compute_max_sim
from tandem.extras.own_tokens import OwnTokens
from tandem.models.ragged import Ids, Ragged
from tandem.models.saving import TOKEN_VECTORS, Dense
from tandem.models.tokens import Template, TokenTexts


@representation("coil")
class Coil(OwnTokens):
    """Match a token's vector only with those of the same token, exactly and in context (Gao, Dai and Callan 2021).

    s(q, p) = E(q) · E(p) + Σ_i max_j v_i · v_j, over the passage's tokens j that equal the query's token i.

    v = W h + b for a text's own tokens, without special ones. E is computed likewise by another layer, from the first
    token, [CLS]; COIL-tok has no E. A query's token that the passage lacks adds nothing. (In the authors' code, no
    token adds less than 0, either.)

    A text is stored as rows of `dim` numbers, with the token's id in two more numbers (see `join_digits`). E is cut
    into such rows, too. Each piece has an id of its own beyond the vocabulary, so that only equal pieces are
    multiplied; their products add up to E(q) · E(p).
    """

    reads = TOKEN_VECTORS
    options: CoilVectors

    def new_layers(self, hidden: int) -> list[Dense]:
        """Return the layer of tokens' vectors, and the layer of E if there is one."""
        sizes = filter(None, [self.options.dim, self.options.cls_dim])
        return [Dense(nn.Linear(hidden, size), nn.Identity(), TOKEN_VECTORS) for size in sizes]

    @property
    def dimension(self) -> int:
        """Return how many numbers a row has."""
        return self.options.dim + ID_NUMBERS

    def shape(self, side: str, longest: int) -> tuple[int, ...]:
        """Return the number of rows, and how many numbers a row has."""
        return (longest + self.options.pieces, self.dimension)

    def counts(self, side: str, texts: Ragged, template: Template) -> Ids:
        """Return how many rows each text has, without computing them, shape (texts,)."""
        own = np.diff(texts.offsets) - len(template.separators(side))
        counts: Ids = np.maximum(own + self.options.pieces, 1)
        return counts

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Return rows of texts, shape (texts, rows, dimension), float32; a row of zeros is not a token.

        Every text needs a row. Without E, a text that has no tokens of its own gets a row for its first special token.
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
        size = self.options.dim
        pieces = self.options.pieces
        vectors = whole[0](states[:, 0])
        vectors = nn.functional.pad(vectors, (0, pieces * size - vectors.shape[1]))
        vectors = vectors.unflatten(1, (pieces, size))
        tower: Any = self.towers[side]
        numbers = tower.config.vocab_size + 1 + torch.arange(pieces, device=ids.device)
        return torch.cat([_with_ids(vectors, numbers.expand(len(ids), -1)), rows], 1)

    def scores(self, queries: Tensor, passages: Tensor) -> Tensor:
        """Return `compute_max_sim` over equal tokens only, divided by this model's temperature."""
        return compute_max_sim(queries, passages, same_token=True) / self.temperature


def _with_ids(vectors: Tensor, ids: Tensor) -> Tensor:
    """Return vectors, shape (texts, rows, dim), with ids (from 1) appended as two numbers; see `join_digits`."""
    digits = torch.stack([ids // DIGIT, ids % DIGIT], -1)
    return torch.cat([vectors, digits.to(vectors)], -1)
