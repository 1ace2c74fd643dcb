"""A base of dual encoders whose layers read the states of a text's own tokens, special ones left out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tandem.errors import UserError
from tandem.models.device import place_all, place_array, precision
from tandem.models.dual import DualEncoder
from tandem.models.ragged import Ragged
from tandem.models.saving import Dense, DualShape
from tandem.models.tokens import Template, count_title_tokens


def refuse_single(folder: Path, shape: DualShape) -> None:
    """Refuse what only single vectors have: another pooling, length 1, reduced dimensions, further layers."""
    own = {
        "pooling": shape.pooling != "max",
        "normalize": shape.normalize,
        "dim": shape.dim,
        "dense": shape.dense,
    }
    if refused := [name for name, value in own.items() if value]:
        hint = (
            f"leave it out; what {shape.type} has is in `representation: {{type: {shape.type}, …}}`"
        )
        raise UserError(
            f"{folder}: {refused[0]} is of single vectors, but representation is {shape.type}; {hint}"
        )


class OwnTokens(DualEncoder, ABC):
    """A dual encoder over texts' own tokens, for which sentence-transformers has no files."""

    packs = False  # tokens are in a padded grid

    @classmethod
    def _check_options(cls, folder: Path, shape: DualShape) -> None:
        refuse_single(folder, shape)

    def _prepare_start(self, folder: Path, shape: DualShape) -> None:
        tower: Any = self.towers["passage"]
        self._add_layers(self.new_layers(tower.config.hidden_size))

    @abstractmethod
    def new_layers(self, hidden: int) -> list[Dense]:
        """Return the layers of a side, whose inputs are states of `hidden` numbers, with random weights."""

    def describe(self, folder: Path, hidden: int, shape: DualShape) -> None:
        """Write nothing."""

    def describe_both(self, folder: Path, shape: DualShape) -> None:
        """Write nothing."""

    def states(
        self,
        side: str,
        texts: Ragged,
        template: Template,
        mode: str,
        multiple: int,
        layers: Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states of texts' tokens, including special tokens and padding.

        Args:
            layers: the layers whose states are returned, from 1, concatenated; None: only the last layer.
        Returns:
            The states, shape (texts, tokens, hidden · layers), float32 at least; the tokens' ids; and whether each is a
            text's own token and not a special one. The last two have shape (texts, tokens).
        """
        placed = place_all(template.single_inputs(texts, side).to_tensors(multiple))
        with precision(mode):
            if layers is None:
                states = self.towers[side](**placed).last_hidden_state
            else:
                hidden = self.towers[side](**placed, output_hidden_states=True).hidden_states
                if max(layers) >= len(hidden):
                    has = f"the tower of {side} has {len(hidden) - 1} layers"
                    raise UserError(f"representation.layers names layer {max(layers)}, but {has}")
                states = torch.cat([hidden[layer] for layer in layers], dim=-1)
        at = torch.arange(states.shape[1], device=states.device) - len(template.single[0])
        lengths = place_array(np.diff(texts.offsets))
        own = (at >= 0) & (at < lengths[:, None])
        if separators := template.separators(side):
            titles = place_array(count_title_tokens(texts).astype(np.int64))[:, None]
            own &= (at < titles) | (at >= titles + len(separators))
        return states.to(torch.promote_types(states.dtype, torch.float32)), placed["input_ids"], own
