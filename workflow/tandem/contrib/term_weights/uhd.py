"""UHD-BERT: vectors of very many dimensions; each token keeps only the dimensions with its largest numbers."""

from typing import Any

import torch
from torch import Tensor, nn

from tandem.config.representations import representation
from tandem.contrib.term_weights.options import WinnersTakeAll
from tandem.contrib.term_weights.splade import compute_in_rows
from tandem.errors import UserError
from tandem.extras.own_tokens import OwnTokens
from tandem.models.device import precision
from tandem.models.ragged import Ragged
from tandem.models.saving import TOKEN_VECTORS, Dense
from tandem.models.tokens import Template, TokenTexts


@representation("uhd")
class UltraHighDimensional(OwnTokens):
    """Very many dimensions; each token keeps only those with its largest numbers (UHD-BERT, Jang et al. 2021).

    w_j = max_i ReLU(z_ij) over the tokens i that j wins: z_ij is among the k largest numbers of z_i = W h_i + b.

    With `layers`, each of these layers of the encoder has such dimensions, computed from its states h by a W and b of
    its own: a text's vector consists of one bucket for each layer.

    The score is the dot product of weights. With `binary`, all weights are 1 except in training, so that the score is
    the number of dimensions that two texts share. Special tokens win nothing.
    """

    reads = TOKEN_VECTORS
    options: WinnersTakeAll

    def new_layers(self, hidden: int) -> list[Dense]:
        """Return the layers that compute the dimensions, one for each bucket.

        Raises:
            UserError: the encoder lacks a layer of `layers`.
        """
        tower: Any = self.towers["passage"]
        last = max(self.options.layers or (0,))
        count = tower.config.num_hidden_layers
        if last > count:
            raise UserError(
                f"representation.layers names layer {last}; allowed: 1 to {count}, the encoder's"
            )
        width = self.options.width
        buckets = range(self.options.buckets)
        return [Dense(nn.Linear(hidden, width), nn.Identity(), TOKEN_VECTORS) for _ in buckets]

    @property
    def full_dimension(self) -> int:
        """Return how many dimensions there are."""
        return self.options.width * self.options.buckets

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Return weights of texts, shape (texts, buckets · width), float32, not negative; see `DualEncoder.encode`."""
        states, _, own = self.states(
            side, Ragged.of(texts), template, mode, multiple, self.options.layers
        )
        layers = self.layers(side)

        def compete(part: dict[str, Tensor]) -> Tensor:
            """Return the buckets of some texts, shape (texts, dimension); only winners are above 0."""
            with precision(mode):
                by_layer = part["states"].chunk(len(layers), dim=-1)
                buckets = [layer(hidden) for layer, hidden in zip(layers, by_layer, strict=True)]
            return torch.cat(
                [keep_winners(logits, part["own"], self.options.winners) for logits in buckets],
                dim=1,
            )

        vectors = compute_in_rows(compete, {"states": states, "own": own}, self.dimension)
        return (vectors > 0).to(vectors) if self.options.binary and not self.training else vectors


def keep_winners(logits: Tensor, mask: Tensor, count: int) -> Tensor:
    """w_j = max_i ReLU(z_ij) over the tokens i that have z_ij among their `count` largest numbers.

    No gradient reaches numbers that lose.

    Args:
        logits: z, shape (texts, tokens, width).
        mask: whether a token counts, shape (texts, tokens).
    Returns:
        Shape (texts, width), float32 at least.
    """
    values, at = logits.topk(min(count, logits.shape[-1]), dim=-1)
    values = values.to(torch.promote_types(logits.dtype, torch.float32)).relu() * mask[..., None]
    vectors = values.new_zeros(logits.shape[0], logits.shape[-1])
    return vectors.scatter_reduce(1, at.flatten(1), values.flatten(1), "amax")
