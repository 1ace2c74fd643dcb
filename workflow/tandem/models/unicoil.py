"""uniCOIL: a text's terms are its own tokens, each with a weight by a linear layer on its state."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.representations import representation
from tandem.models.dense import Dense
from tandem.models.device import place, precision
from tandem.models.dual import SIDES, DualEncoder
from tandem.models.hub import save_encoder
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape, Lengths, plain_shape
from tandem.models.sparse import check_start
from tandem.models.tokens import Template, Texts
from tandem.store.files import write_json

LAYER = "2_Dense"


def unicoil_usage(shape: DualShape, lengths: Lengths) -> str:
    """How to load the model of a `dual.json`, which other libraries do not know."""
    passage = "dual/shared" if shape.shared else "dual/passage"
    return f"""\
```python
from pathlib import Path
from tandem.models.dual import dot_scores
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Template
from tandem.models.unicoil import UniCoil

model, tokenizer = UniCoil.load(Path("dual")).eval(), load_tokenizer(Path("{passage}"))
query, text = tokenizer(["a query", "a passage"], add_special_tokens=False)["input_ids"]
sides = (("query", [query]), ("passage", [text]))
scores = dot_scores(*(model.encode(*side, Template.of(tokenizer), "fp32") for side in sides), model.temperature)
```"""


@representation("unicoil")
class UniCoil(DualEncoder):
    """w_t = max over the text's tokens i of term t of ReLU(W h_i + b), and 0 of all other terms (Lin and Ma 2021).

    Special tokens have no weight. Without the expansion of passages, which is a matter of the texts.
    """

    packs = False  # tokens stand in a grid
    usage = staticmethod(unicoil_usage)

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

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write each tower as transformers' folder with its layer in `2_Dense/`."""
        for name in ("shared",) if self.shared else SIDES:
            side = "query" if name == "shared" else name
            save_encoder(self.towers[side], tokenizer, folder / name)
            self.layers(side)[0].save(folder / name / LAYER)
        numbers = (self.shared, self.pooling, False, self.temperature, self.dimension)
        shape = DualShape(*numbers, prompts=self.prompts, dense=[LAYER], representation={"type": "unicoil"})
        write_json(folder / "dual.json", plain_shape(shape))

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
