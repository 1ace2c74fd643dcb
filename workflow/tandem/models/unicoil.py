"""uniCOIL: a text's terms are its own tokens, each with a weight by a linear layer on its state."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.representations import REPRESENTATIONS, Representation, representation
from tandem.models.dense import Dense
from tandem.models.device import place, precision
from tandem.models.dual import DualEncoder
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape
from tandem.models.sparse import check_start
from tandem.models.static_queries import StaticQueries
from tandem.models.tokens import Template, Texts
from tandem.models.usage import Lengths, tandem_usage


class OwnTokens(DualEncoder, ABC):
    """A dual encoder of texts' own tokens, for which sentence-transformers has no files to put beside the weights."""

    packs = False  # tokens stand in a grid
    options: Representation

    @classmethod
    def start(cls, folder: Path, shared: bool, pooling: str, normalize: bool, temperature: float, **more: Any) -> Self:
        """Towers from one encoder, with new layers drawn from torch's generator, the same on both sides.

        Raises:
            UserError: keys of single vectors are set.
        """
        shape = DualShape(shared, pooling, normalize, temperature, **more)
        check_start(folder, shape)
        model = cls._read(folder, folder, shape)
        tower: Any = model.towers["passage"]
        layers = model.new_layers(tower.config.hidden_size)
        own = layers if shared else copy.deepcopy(layers)
        model.dense.update({"query": nn.ModuleList([] if model.static else own), "passage": nn.ModuleList(layers)})
        return model

    @classmethod
    def _read(cls, query: Path, passage: Path, shape: DualShape) -> Self:
        model = super()._read(query, passage, shape)
        model.options = REPRESENTATIONS[shape.type].model_validate(dict(shape.representation))
        return model

    @abstractmethod
    def new_layers(self, hidden: int) -> list[Dense]:
        """The layers of a side, which read states of `hidden` numbers, with random weights."""

    @property
    def static(self) -> bool:
        """Whether no model reads a query."""
        return isinstance(self.towers["query"], StaticQueries)

    @property
    def representation(self) -> dict[str, object]:
        """The options as `dual.json` has them."""
        return self.options.model_dump()

    def describe(self, folder: Path, hidden: int, shape: DualShape) -> None:
        """Write nothing."""

    def describe_both(self, folder: Path, shape: DualShape) -> None:
        """Write nothing."""

    @staticmethod
    def usage(shape: DualShape, lengths: Lengths) -> str:
        """How to load the model of a `dual.json`."""
        return tandem_usage(shape)

    def states(
        self,
        side: str,
        texts: Ragged,
        template: Template,
        mode: str,
        multiple: int,
        layers: Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Texts' tokens, special ones included, and padding.

        Args:
            layers: whose states are returned, from 1, one beside the other; None: the last one's.
        Returns:
            Their states, shape (texts, tokens, hidden · layers), float32 at least; their ids and whether they are a
            text's own and no special ones, both of shape (texts, tokens).
        """
        inputs = template.single_inputs(texts, template.titled and side == "passage").padded(multiple)
        placed = {name: place(row) for name, row in inputs.items()}
        with precision(mode):
            if layers is None:
                states = self.towers[side](**placed).last_hidden_state
            else:
                hidden = self.towers[side](**placed, output_hidden_states=True).hidden_states
                states = torch.cat([hidden[layer] for layer in layers], dim=-1)
        at = torch.arange(states.shape[1], device=states.device) - len(template.single[0])
        lengths = place(torch.from_numpy(np.diff(texts.offsets)))
        own = (at >= 0) & (at < lengths[:, None])
        return states.to(torch.promote_types(states.dtype, torch.float32)), placed["input_ids"], own


@representation("unicoil")
class UniCoil(OwnTokens):
    """w_t = max over the text's tokens i of term t of ReLU(W h_i + b), and 0 of all other terms (Lin and Ma 2021).

    Special tokens have no weight. Without the expansion of passages, which is a matter of the texts. With
    `queries: tokens` the query's tower is `StaticQueries`, and nothing of it is learned.
    """

    @classmethod
    def _read(cls, query: Path, passage: Path, shape: DualShape) -> Self:
        """The towers of two folders, with their layers; of the query's nothing is read where it is static."""
        if shape.representation.get("queries") != "tokens":
            return super()._read(query, passage, shape)
        model = super()._read(passage, passage, replace(shape, shared=True))
        model.towers["query"] = StaticQueries(torch.ones(model.whole))
        model.dense["query"] = nn.ModuleList()
        return model

    def new_layers(self, hidden: int) -> list[Dense]:
        """The layer that weighs a token."""
        return [Dense(nn.Linear(hidden, 1), nn.ReLU())]

    @property
    def whole(self) -> int:
        """How many numbers a vector has: entries of the vocabulary."""
        tower: Any = self.towers["passage"]
        return int(tower.config.vocab_size)

    def encode(self, side: str, texts: Texts, template: Template, mode: str, multiple: int = 1) -> Tensor:
        """Weights of texts, shape (texts, vocabulary), float32, not negative; see `DualEncoder.encode`."""
        tower, rows = self.towers[side], Ragged.of(texts)
        if isinstance(tower, StaticQueries):
            return tower(rows)  # type: ignore[no-any-return]
        (layer,) = self.layers(side)
        ids, scalars, own = self.scalars(side, rows, template, mode, multiple)
        vectors = scalars.new_zeros(len(rows), self.dimension)
        return vectors.scatter_reduce(1, ids, layer.activation(scalars) * own, "amax")

    def scalars(
        self, side: str, rows: Ragged, template: Template, mode: str, multiple: int = 1
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The tokens' ids, W h_i + b of each token i, and which of them are a text's own; see `states`."""
        states, ids, own = self.states(side, rows, template, mode, multiple)
        (layer,) = self.layers(side)
        return ids, layer.linear(states)[..., 0], own
