"""Layers on the states of a text's tokens: weights by uniCOIL, SpaDE and UHD-BERT."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.representations import SpadeTerms, WinnersTakeAll, representation
from tandem.errors import UserError
from tandem.models.device import place_all, place_array, precision
from tandem.models.dual import DualEncoder
from tandem.models.hub import save_encoder
from tandem.models.ragged import Ragged
from tandem.models.saving import TOKEN_VECTORS, Dense, DualShape, StaticQueries
from tandem.models.sparse import compute_in_rows, keep_winners, load_masked_lm, refuse_single
from tandem.models.tokens import Template, TokenTexts, count_title_tokens
from tandem.models.usage import describe_tandem_usage

EXPANSION = "expansion"


class OwnTokens(DualEncoder, ABC):
    """Build a dual encoder of texts' own tokens, for which sentence-transformers has no files."""

    packs = False  # tokens stand in a grid
    usage = staticmethod(describe_tandem_usage)

    @classmethod
    def _refuse(cls, folder: Path, shape: DualShape) -> None:
        refuse_single(folder, shape)

    def _begin(self, folder: Path, shape: DualShape) -> None:
        tower: Any = self.towers["passage"]
        self._add_layers(self.new_layers(tower.config.hidden_size))

    @abstractmethod
    def new_layers(self, hidden: int) -> list[Dense]:
        """Return the layers of a side, which read states of `hidden` numbers, with random weights."""

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
        """Texts' tokens, special ones included, and padding.

        Args:
            layers: whose states are returned, from 1, one beside the other; None: the last one's.
        Returns:
            Their states, shape (texts, tokens, hidden · layers), float32 at least; their ids and whether they are a
            text's own and no special ones, both of shape (texts, tokens).
        """
        placed = place_all(template.single_inputs(texts, side).padded(multiple))
        with precision(mode):
            if layers is None:
                states = self.towers[side](**placed).last_hidden_state
            else:
                hidden = self.towers[side](**placed, output_hidden_states=True).hidden_states
                states = torch.cat([hidden[layer] for layer in layers], dim=-1)
        at = torch.arange(states.shape[1], device=states.device) - len(template.single[0])
        lengths = place_array(np.diff(texts.offsets))
        own = (at >= 0) & (at < lengths[:, None])
        if separators := template.separators(side):
            titles = place_array(count_title_tokens(texts).astype(np.int64))[:, None]
            own &= (at < titles) | (at >= titles + len(separators))
        return states.to(torch.promote_types(states.dtype, torch.float32)), placed["input_ids"], own


@representation("unicoil")
class UniCoil(OwnTokens):
    """w_t = max over the text's tokens i of term t of ReLU(W h_i + b), and 0 of all other terms (Lin and Ma 2021).

    Special tokens have no weight. Without the expansion of passages, which is a matter of the texts. With
    `queries: tokens` the query's tower is `StaticQueries`, and nothing of it is learned.
    """

    def new_layers(self, hidden: int) -> list[Dense]:
        """Return the layer that weighs a token."""
        return [Dense(nn.Linear(hidden, 1), nn.ReLU())]

    @property
    def whole(self) -> int:
        """Return how many numbers a vector has: entries of the vocabulary."""
        tower: Any = self.towers["passage"]
        return int(tower.config.vocab_size)

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Weights of texts, shape (texts, vocabulary), float32, not negative; see `DualEncoder.encode`."""
        tower = self.towers[side]
        rows = Ragged.of(texts)
        if isinstance(tower, StaticQueries):
            return tower(rows)  # type: ignore[no-any-return]
        (layer,) = self.layers(side)
        ids, scalars, own = self.scalars(side, rows, template, mode, multiple)
        vectors = scalars.new_zeros(len(rows), self.dimension)
        return vectors.scatter_reduce(1, ids, layer.activation(scalars) * own, "amax")

    def scalars(
        self, side: str, rows: Ragged, template: Template, mode: str, multiple: int = 1
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tokens' ids, W h_i + b of each token i, and which of them are a text's own; see `states`."""
        states, ids, own = self.states(side, rows, template, mode, multiple)
        (layer,) = self.layers(side)
        return ids, layer.linear(states)[..., 0], own


@representation("spade")
class Spade(UniCoil):
    """Two encoders of passages: one weighs a passage's own tokens, one adds others (SpaDE, Choi et al. 2022).

    p = (1 - α) w + α e, of the weights w of uniCOIL and an expansion e, which have an encoder each.

    e_j = max_i ReLU(logit_ij) over the tokens i, special ones included, of which j is among the k likeliest entries of
    the vocabulary. A query weighs 1 for each of its tokens, and no model reads it.
    """

    options: SpadeTerms
    part: Literal["weights", "expansion", "both"] = "both"

    @classmethod
    def _read(cls, query: Path, passage: Path, shape: DualShape) -> Self:
        """Return the model of a saved folder's `query` and `passage`.

        A start is one folder with a masked language model.
        """
        model = super()._read(query, passage, shape)
        model.towers[EXPANSION] = load_masked_lm(
            passage if query == passage else passage.parent / EXPANSION
        )
        return model

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write what uniCOIL does, and the encoder of the expansion beside it."""
        super().save(folder, tokenizer)
        save_encoder(self.towers[EXPANSION], tokenizer, folder / EXPANSION)

    def alone(self, part: Literal["weights", "expansion"]) -> Self:
        """Return the same model, with the same encoders, of whose passages one part is left: w or e."""
        model = copy.copy(self)
        model.part = part
        return model

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Weights of texts, shape (texts, vocabulary), float32, not negative; see `DualEncoder.encode`."""
        texts = Ragged.of(texts)
        if side == "query" or self.part == "weights":
            return super().encode(side, texts, template, mode, multiple)

        def expand(part: dict[str, Tensor]) -> Tensor:
            with precision(mode):
                logits = self.towers[EXPANSION](**part).logits
            return keep_winners(logits, part["attention_mask"], self.options.terms)

        inputs = place_all(template.single_inputs(texts, side).padded(multiple))
        share = self.options.share
        expansion = compute_in_rows(expand, inputs, self.dimension)
        if self.part == "expansion":
            return expansion
        return (1 - share) * super().encode(
            side, texts, template, mode, multiple
        ) + share * expansion


@representation("uhd")
class UltraHighDimensional(OwnTokens):
    """Very many dimensions, of which each token keeps those of its largest numbers (UHD-BERT, Jang et al. 2021).

    w_j = max_i ReLU(z_ij) over the tokens i that j wins: z_ij is among the k largest numbers of z_i = W h_i + b.

    With `layers` there are such dimensions for each of these layers of the encoder, of its states h and by a W and b of
    its own: a text has a bucket a layer, one beside the other.

    The score is the dot product of weights; with `binary` all of them are 1, except while the model learns: the number
    of dimensions that two texts share. Special tokens win nothing.
    """

    reads = TOKEN_VECTORS
    options: WinnersTakeAll

    def new_layers(self, hidden: int) -> list[Dense]:
        """Return the layer that makes each bucket's dimensions.

        A `UserError` where the encoder lacks a layer of `layers`.
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
    def whole(self) -> int:
        """Return how many dimensions there are."""
        return self.options.width * self.options.buckets

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Weights of texts, shape (texts, buckets · width), float32, not negative; see `DualEncoder.encode`."""
        states, _, own = self.states(
            side, Ragged.of(texts), template, mode, multiple, self.options.layers
        )
        layers = self.layers(side)

        def compete(part: dict[str, Tensor]) -> Tensor:
            """Return the buckets of some texts, in which only the winners are above 0, shape (texts, dimension)."""
            with precision(mode):
                by_layer = part["states"].chunk(len(layers), dim=-1)
                buckets = [layer(hidden) for layer, hidden in zip(layers, by_layer, strict=True)]
            return torch.cat(
                [keep_winners(logits, part["own"], self.options.winners) for logits in buckets],
                dim=1,
            )

        vectors = compute_in_rows(compete, {"states": states, "own": own}, self.dimension)
        return (vectors > 0).to(vectors) if self.options.binary and not self.training else vectors
