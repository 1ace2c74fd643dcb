"""UHD-BERT: very many dimensions, of which each token keeps the few of its largest numbers (Jang et al. 2021)."""

from typing import Any

import torch
from torch import Tensor, nn

from tandem.config.representations import WinnersTakeAll, representation
from tandem.errors import UserError
from tandem.models.dense import TOKENS, Dense
from tandem.models.device import precision
from tandem.models.ragged import Ragged
from tandem.models.sparse import in_rows, winners
from tandem.models.tokens import Template, Texts
from tandem.models.unicoil import OwnTokens


@representation("uhd")
class UltraHighDimensional(OwnTokens):
    """w_j = max_i ReLU(z_ij) over the tokens i that j wins: z_ij is among the k largest numbers of z_i = W h_i + b.

    With `layers` there are such dimensions for each of these layers of the encoder, of its states h and by a W and b of
    its own: a text has a bucket a layer, one beside the other.

    The score is the dot product of weights; with `binary` all of them are 1, except while the model learns: the number
    of dimensions that two texts share. Special tokens win nothing.
    """

    reads, first_dense = TOKENS, 1
    options: WinnersTakeAll

    def new_layers(self, hidden: int) -> list[Dense]:
        """The layer that makes each bucket's dimensions.

        Raises:
            UserError: the encoder has fewer layers than `layers` says.
        """
        tower: Any = self.towers["passage"]
        last, count = max(self.options.layers or (0,)), tower.config.num_hidden_layers
        if last > count:
            raise UserError(f"representation.layers names layer {last}; allowed: 1 to {count}, the encoder's")
        width, buckets = self.options.width, range(self.options.buckets)
        return [Dense(nn.Linear(hidden, width), nn.Identity(), TOKENS) for _ in buckets]

    @property
    def whole(self) -> int:
        """How many dimensions there are."""
        return self.options.width * self.options.buckets

    def encode(self, side: str, texts: Texts, template: Template, mode: str, multiple: int = 1) -> Tensor:
        """Weights of texts, shape (texts, buckets · width), float32, not negative; see `DualEncoder.encode`."""
        states, _, own = self.states(side, Ragged.of(texts), template, mode, multiple, self.options.layers)
        layers = self.layers(side)

        def compete(part: dict[str, Tensor]) -> Tensor:
            with precision(mode):
                by_layer = part["states"].chunk(len(layers), dim=-1)
                buckets = [layer(hidden) for layer, hidden in zip(layers, by_layer, strict=True)]
            return torch.cat([winners(logits, part["own"], self.options.winners) for logits in buckets], dim=1)

        vectors = in_rows(compete, {"states": states, "own": own}, self.dimension)
        return (vectors > 0).to(vectors) if self.options.binary and not self.training else vectors
