"""uniCOIL: a text's terms are its own tokens, each with a weight by a linear layer on its state."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.representations import representation
from tandem.models.dense import Dense
from tandem.models.device import place, precision
from tandem.models.dual import DualEncoder
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape
from tandem.models.sparse import check_start
from tandem.models.tokens import Template, Texts
from tandem.models.usage import Lengths, tandem_usage


@representation("unicoil")
class UniCoil(DualEncoder):
    """w_t = max over the text's tokens i of term t of ReLU(W h_i + b), and 0 of all other terms (Lin and Ma 2021).

    Special tokens have no weight. Without the expansion of passages, which is a matter of the texts.
    """

    packs = False  # tokens stand in a grid

    @classmethod
    def start(cls, folder: Path, shared: bool, pooling: str, normalize: bool, temperature: float, **more: Any) -> Self:
        """Towers from one encoder, with a new layer drawn from torch's generator, the same on both sides.

        Raises:
            UserError: keys of single vectors are set.
        """
        shape = DualShape(shared, pooling, normalize, temperature, **more)
        check_start(folder, shape)
        model = cls._read(folder, folder, shape)
        tower: Any = model.towers["passage"]
        layer = Dense(nn.Linear(tower.config.hidden_size, 1), nn.ReLU())
        copy = layer if shared else Dense(nn.Linear(tower.config.hidden_size, 1), nn.ReLU())
        copy.load_state_dict(layer.state_dict())
        model.dense.update({"query": nn.ModuleList([layer]), "passage": nn.ModuleList([copy])})
        return model

    @property
    def whole(self) -> int:
        """How many numbers a vector has: entries of the vocabulary."""
        tower: Any = self.towers["passage"]
        return int(tower.config.vocab_size)

    @property
    def representation(self) -> dict[str, object]:
        """As `dual.json` has it, without options."""
        return {"type": "unicoil"}

    def describe(self, folder: Path, hidden: int, shape: DualShape) -> None:
        """sentence-transformers has no such model: nothing stands beside the weights."""

    def describe_both(self, folder: Path, shape: DualShape) -> None:
        """Likewise."""

    @staticmethod
    def usage(shape: DualShape, lengths: Lengths) -> str:
        """How to load the model of a `dual.json`, which other libraries do not know."""
        return tandem_usage(shape)

    def encode(self, side: str, texts: Texts, template: Template, mode: str, multiple: int = 1) -> Tensor:
        """Weights of texts, shape (texts, vocabulary), float32, not negative; see `DualEncoder.encode`."""
        rows = Ragged.of(texts)
        inputs = template.single_inputs(rows, template.titled and side == "passage").padded(multiple)
        placed = {name: place(row) for name, row in inputs.items()}
        with precision(mode):
            states = self.towers[side](**placed).last_hidden_state
        (layer,) = self.layers(side)
        at = torch.arange(states.shape[1], device=states.device) - len(template.single[0])
        lengths = place(torch.from_numpy(np.diff(rows.offsets)))
        own = (at >= 0) & (at < lengths[:, None])
        weights: Tensor = layer(states.to(torch.promote_types(states.dtype, torch.float32)))[..., 0] * own
        vectors = weights.new_zeros(len(rows), self.dimension)
        return vectors.scatter_reduce(1, placed["input_ids"], weights, "amax")
