"""uniCOIL: a weight for each of a text's own tokens."""

from typing import Any

from torch import Tensor, nn

from tandem.config.representations import representation
from tandem.contrib.term_weights.static_queries import StaticQueries, StaticSide
from tandem.extras.own_tokens import OwnTokens
from tandem.models.ragged import Ragged
from tandem.models.saving import Dense
from tandem.models.tokens import Template, TokenTexts


@representation("unicoil")
class UniCoil(StaticSide, OwnTokens):
    """Weigh a text's own terms: ReLU(W h_i + b) for each token i, and 0 for all other terms (Lin and Ma 2021).

    If a term occurs several times, its weight is the largest of its tokens' in a passage and their sum in a query. So
    the score is COIL's: Σ over the query's tokens of the product with the term's best token of the passage. Special
    tokens have no weight. Passages are not expanded here: that would change the texts. With `queries: tokens`, the
    query's tower is `StaticQueries`, and it learns nothing.
    """

    def new_layers(self, hidden: int) -> list[Dense]:
        """Return the layer that weighs a token."""
        return [Dense(nn.Linear(hidden, 1), nn.ReLU())]

    @property
    def full_dimension(self) -> int:
        """Return how many numbers a vector has: entries of the vocabulary."""
        tower: Any = self.towers["passage"]
        return int(tower.config.vocab_size)

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Return weights of texts, shape (texts, vocabulary), float32, not negative; see `DualEncoder.encode`."""
        tower = self.towers[side]
        rows = Ragged.of(texts)
        if isinstance(tower, StaticQueries):
            return tower(rows)  # type: ignore[no-any-return]
        (layer,) = self.layers(side)
        ids, scalars, own = self.scalars(side, rows, template, mode, multiple)
        vectors = scalars.new_zeros(len(rows), self.dimension)
        weights = layer.activation(scalars) * own
        how = "sum" if side == "query" else "amax"
        return vectors.scatter_reduce(1, ids, weights, how)

    def scalars(
        self, side: str, rows: Ragged, template: Template, mode: str, multiple: int = 1
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tokens' ids, W h_i + b of each token i, and a mask of the text's own tokens; see `states`."""
        states, ids, own = self.states(side, rows, template, mode, multiple)
        (layer,) = self.layers(side)
        return ids, layer.linear(states)[..., 0], own
