"""UHD-BERT: very many dimensions, of which each token keeps the few of its largest numbers (Jang et al. 2021)."""

from torch import Tensor, nn

from tandem.config.representations import WinnersTakeAll, representation
from tandem.models.dense import TOKENS, Dense
from tandem.models.device import precision
from tandem.models.ragged import Ragged
from tandem.models.sparse import in_rows, winners
from tandem.models.tokens import Template, Texts
from tandem.models.unicoil import OwnTokens


@representation("uhd")
class UltraHighDimensional(OwnTokens):
    """w_j = max_i ReLU(z_ij) over the tokens i that j wins: z_ij is among the k largest numbers of z_i = W h_i + b.

    The score is the dot product of weights; with `binary` all of them are 1, except while the model learns: the number
    of dimensions that two texts share. Special tokens win nothing.
    """

    reads, first_dense = TOKENS, 1
    options: WinnersTakeAll

    def new_layers(self, hidden: int) -> list[Dense]:
        """The layer that makes the dimensions."""
        return [Dense(nn.Linear(hidden, self.options.width), nn.Identity(), TOKENS)]

    @property
    def whole(self) -> int:
        """How many dimensions there are."""
        return self.options.width

    def encode(self, side: str, texts: Texts, template: Template, mode: str, multiple: int = 1) -> Tensor:
        """Weights of texts, shape (texts, width), float32, not negative; see `DualEncoder.encode`."""
        states, _, own = self.states(side, Ragged.of(texts), template, mode, multiple)
        (layer,) = self.layers(side)

        def compete(part: dict[str, Tensor]) -> Tensor:
            with precision(mode):
                logits = layer(part["states"])
            return winners(logits, part["own"], self.options.winners)

        vectors = in_rows(compete, {"states": states, "own": own}, self.dimension)
        return (vectors > 0).to(vectors) if self.options.binary and not self.training else vectors
