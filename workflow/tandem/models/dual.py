"""Dual encoders: query and passage each become one vector; their dot product is the score (RocketQAv2 Eq. 1)."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.representations import REPRESENTATIONS, Representation, is_single, representation
from tandem.errors import UserError
from tandem.models.described import check_dense
from tandem.models.device import device, fetch_tensor, move_to_device, place_array
from tandem.models.encoding import check_range, encode_and_pool, make_equal_batches
from tandem.models.hub import check_length, load_encoder, save_encoder
from tandem.models.published import check_pooling
from tandem.models.ragged import Ids, Ragged, split_by_tokens
from tandem.models.saving import (
    INPUT,
    Dense,
    DualShape,
    describe_encoder,
    describe_two_towers,
)
from tandem.models.tokens import Template, TokenTexts

SIDES = ("query", "passage")
# Lengths are padded to a multiple of this: in odd shapes the last bits of matrix products depend on the threads.
LENGTH_STEP = 8
_PAIRS_PER_BLOCK = 64  # pairs that are scored at once


@representation("single")
class DualEncoder(nn.Module):
    """Two towers, or one for both sides; here a text is one vector, in subclasses another representation.

    Args:
        query: the query's tower; where no model reads a query, a module without an encoder.
        passage: the passage tower; the same module where the towers are shared.
        shape: how vectors and scores are computed; what follows from the towers and their layers is not looked at.
    Attributes:
        temperature: scores are dot products divided by it.
        dim: how many of a vector's first numbers are kept; None keeps all.
        prompts: what stands in front of each side's texts. Token ids hold it already; `save` tells others.
        options: those of its representation.
        packed: tokens that a packed row is filled up to; None pads texts. Set by `accelerate`.
    """

    options: Representation
    packed: int | None = None
    packs = True  # whether it can read packed texts
    load_tower: Callable[[Path], Any] = staticmethod(load_encoder)
    # what a model's card says on how to load it, by the shape and the longest inputs
    usage: Callable[[DualShape, Any], str] | None = None
    reads = INPUT  # what its linear layers read
    # what trains it on lists, a `training.objectives.dual.DualObjective`
    objective: str | Callable[..., Any] = "training.objectives.dual:BatchDualObjective"

    def __init__(self, query: nn.Module, passage: nn.Module, shape: DualShape) -> None:
        super().__init__()
        self.towers = nn.ModuleDict({"query": query, "passage": passage})
        self.dense = nn.ModuleDict({side: nn.ModuleList() for side in SIDES})
        self.pooling = shape.pooling
        self.normalize = shape.normalize
        self.temperature = shape.temperature
        self.dim = shape.dim
        self.prompts = dict(shape.prompts)
        self.options = REPRESENTATIONS[shape.type].model_validate(dict(shape.representation))

    @classmethod
    def start(
        cls,
        folder: Path,
        shared: bool,
        pooling: str,
        normalize: bool,
        temperature: float,
        **more: Any,
    ) -> Self:
        """Return a dual encoder from a pre-trained encoder: both towers start from the same weights.

        New linear layers, where a representation has them, are drawn from torch's generator, alike on both sides. A
        `UserError` where the encoder, or an option, does not fit the representation.

        Args:
            more: `dim`, `prompts`, the options of a `representation`, and `dense`, folders of linear layers within the
                encoder's folder, in order.
        """
        shape = DualShape(shared, pooling, normalize, temperature, **more)
        cls._refuse(folder, shape)
        check_dense(folder, shape.dense)
        model = cls._read(folder, folder, shape)
        model._begin(folder, shape)
        return model

    @classmethod
    def _refuse(cls, folder: Path, shape: DualShape) -> None:
        """Refuse options that are not the representation's, before weights are read; here all are."""

    def _begin(self, folder: Path, shape: DualShape) -> None:
        """Check what starts from an encoder, and add new layers; here it must be pooled so, and have `dim` numbers."""
        check_pooling(self.towers["query"], self.pooling, folder)
        if shape.dim is not None and shape.dim > self.whole:
            raise UserError(
                f"{folder}: dim is {shape.dim}, but its vectors have {self.whole} numbers"
            )

    def _add_layers(self, layers: list[Dense]) -> None:
        """New linear layers: the same where towers are shared, else alike."""
        query = layers if self.shared else copy.deepcopy(layers)
        self.dense.update({"query": nn.ModuleList(query), "passage": nn.ModuleList(layers)})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the dual encoder of this class that `save` wrote; see `load_dual`."""
        shape = DualShape.read(folder)
        if representation[shape.type] is not cls:
            raise UserError(
                f"{folder}: is of representation {shape.type}, which cannot be used here"
            )
        query, passage = ("shared", "shared") if shape.shared else SIDES
        return cls._read(folder / query, folder / passage, shape)

    @classmethod
    def _read(cls, query: Path, passage: Path, shape: DualShape) -> Self:
        """Return the towers of two folders; only one is read where they are shared."""
        folders = (passage,) if shape.shared else (query, passage)
        towers = [cls.load_tower(folder) for folder in folders]
        layers = [
            nn.ModuleList(Dense.load(folder / name, cls.reads) for name in shape.dense)
            for folder in folders
        ]
        model = cls(towers[0], towers[-1], shape)
        model.dense.update({"query": layers[0], "passage": layers[-1]})
        return model

    @property
    def shared(self) -> bool:
        """Return whether both sides use one tower."""
        return self.towers["query"] is self.towers["passage"]

    def untie(self) -> None:
        """Give each side a tower of its own, where both share one: a copy of it, so that nothing changes yet."""
        if self.shared:
            self.towers["query"] = copy.deepcopy(self.towers["passage"])
            self.dense["query"] = copy.deepcopy(self.dense["passage"])

    def layers(self, side: str) -> list[Dense]:
        """Return a side's linear layers between pooling and length 1: usually none."""
        return list(cast(nn.ModuleList, self.dense[side]))  # type: ignore[arg-type]

    @property
    def whole(self) -> int:
        """Return how many numbers a vector has before it is cut to `dim`."""
        tower: Any = self.towers["passage"]
        return int(
            [
                tower.config.hidden_size,
                *(layer.linear.out_features for layer in self.layers("passage")),
            ][-1]
        )

    @property
    def dimension(self) -> int:
        """Return how many numbers a vector has."""
        return self.dim or self.whole

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write each tower as a folder that transformers and sentence-transformers load, and two together as one."""
        # the place of the first linear layer among the modules that are called
        first = 2 if self.reads == INPUT else 1
        shape = DualShape(
            *(
                self.shared,
                self.pooling,
                self.normalize,
                self.temperature,
                self.dimension,
                self.dim,
                self.prompts,
            ),
            dense=[f"{at}_Dense" for at, _ in enumerate(self.layers("passage"), first)],
            representation={} if is_single(self.options) else self.options.model_dump(),
            marked=self.mark(tokenizer),
        )
        for name in ("shared",) if self.shared else SIDES:
            side = "query" if name == "shared" else name
            tower: Any = self.towers[side]
            save_encoder(tower, tokenizer, folder / name)
            # To others the cut at `dim` is one more linear layer: their own comes behind the scaling to length 1.
            cut = [Dense.truncating(self.whole, self.dim)] if self.dim else []
            for at, layer in enumerate([*self.layers(side), *cut], first):
                layer.save(folder / name / f"{at}_Dense")
            self.describe(folder / name, tower.config.hidden_size, shape)
        if not self.shared:
            self.describe_both(folder, shape)
        shape.write(folder)

    def mark(self, tokenizer: Any) -> dict[str, str]:
        """Add the markers of texts, which here have none, to a tokenizer; see `DualShape.marked`."""
        return {}

    def describe(self, folder: Path, hidden: int, shape: DualShape) -> None:
        """Tell sentence-transformers how a tower in a folder, with states of `hidden` numbers, represents texts."""
        describe_encoder(folder, hidden, shape)

    def describe_both(self, folder: Path, shape: DualShape) -> None:
        """Write the same for the folder of two towers, of which each is described already."""
        describe_two_towers(folder, *SIDES, shape)

    def freeze_heads(self, prepare: Callable[[nn.Linear], nn.Module]) -> None:
        """Make ready for inference what stands above the encoders; here it stays as it is.

        Args:
            prepare: makes a linear layer ready.
        """

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Vectors of texts.

        Args:
            texts: token ids of each text, without special tokens.
            multiple: pad the length up to a multiple of this; of no effect where texts are packed.
        Returns:
            Shape (texts, dimension), float32.
        """
        inputs = template.single_inputs(texts, side)
        vectors = encode_and_pool(
            self.towers[side], inputs, self.pooling, mode, self.packed, multiple
        )
        for layer in self.layers(side):
            vectors = layer(vectors)
        vectors = vectors[:, : self.dim]
        return nn.functional.normalize(vectors, dim=-1) if self.normalize else vectors

    def shape(self, side: str, longest: int) -> tuple[int, ...]:
        """Return the shape that texts are filled up to with zeros.

        None has more than `longest` tokens, special ones too.
        """
        return (self.dimension,)

    def scores(self, queries: Tensor, passages: Tensor) -> Tensor:
        """s(q, p) of encoded texts, with gradient: `dot_scores` by this model's temperature."""
        return dot_scores(queries, passages, self.temperature)

    @torch.inference_mode()
    def score(
        self, queries: TokenTexts, passages: TokenTexts, template: Template, mode: str, budget: int
    ) -> Ids:
        """s(q, p) of pairs by their texts' token ids, shape (pairs,), float32; a text of several is encoded once.

        Of fp16 numbers, in float64; no bit depends on which pairs are scored together: see `make_equal_batches`.
        """
        self.eval()
        sides = []
        places = []
        for side, texts in (("query", Ragged.of(queries)), ("passage", Ragged.of(passages))):
            known: dict[bytes, int] = {}
            places.append(
                [known.setdefault(texts[row].tobytes(), len(known)) for row in range(len(texts))]
            )
            first = np.unique(places[-1], return_index=True)[1]
            sides.append(
                encode_all(
                    self, side, texts.take(first), template, mode, budget, torch.float16, equal=True
                )
            )
        scores = np.empty(len(places[0]), np.float32)
        for start in range(0, len(scores), _PAIRS_PER_BLOCK):
            query, passage = (
                side[at[start : start + _PAIRS_PER_BLOCK]]
                for side, at in zip(sides, places, strict=True)
            )
            pairs = self.scores(
                move_to_device(query).double(), move_to_device(passage).double()[:, None]
            )
            scores[start : start + _PAIRS_PER_BLOCK] = pairs[:, 0].float().cpu().numpy()
        return scores

    def check_lengths(self, query: int, passage: int, template: Template, where: str) -> None:
        """Refuse texts that, padded, have more tokens than the encoder has positions for; `where` has the limits."""
        padded = -(-(max(query, passage) + template.extra[0]) // LENGTH_STEP) * LENGTH_STEP
        check_length(
            self.towers["passage"], padded, f"{where}: the longer of query and passage, padded,"
        )


def load_dual(folder: Path) -> DualEncoder:
    """Return a saved dual encoder, of the class of its representation; a `UserError` if no package here has that."""
    name = DualShape.read(folder).type
    if name not in REPRESENTATIONS:
        known = ", ".join(REPRESENTATIONS)
        raise UserError(f"{folder}: is of representation {name}; allowed: {known}")
    model: DualEncoder = representation[name].load(folder)
    return model


def dot_scores(queries: Tensor, passages: Tensor, temperature: float) -> Tensor:
    """s(q, p) = E_Q(q) · E_P(p) / temperature (RocketQAv2 Eq. 1; the temperature is 1 there).

    Args:
        queries: shape (queries, dim).
        passages: shape (passages, dim), every query against all; or (queries, list, dim), each against its list.
    Returns:
        Shape (queries, passages) or (queries, list).
    """
    if passages.dim() > queries.dim():
        return torch.einsum("qd,qld->ql", queries, passages) / temperature
    return queries @ passages.T / temperature


@torch.inference_mode()
def encode_batches(
    model: DualEncoder,
    side: str,
    texts: Ragged,
    template: Template,
    mode: str,
    budget: int,
    on_batch: Callable[[Ids], object] = len,
    equal: bool = False,
) -> Iterator[tuple[Ids, Tensor]]:
    """Encode texts in batches of at most `budget` tokens, which depend on the texts' lengths alone.

    Args:
        texts: token ids without special tokens.
        on_batch: called with the token counts, special tokens included, of each batch's texts once the device has them.
        equal: a text is not to depend on the others: `make_equal_batches`, filled up by their last text, unpacked.
    Yields:
        The rows of a batch among the texts and what `model.encode` makes of them, on the device.
    """
    lengths = np.diff(texts.offsets) + template.extra[0]
    packed = model.packed is not None
    padded = lengths if packed else -(-lengths // LENGTH_STEP) * LENGTH_STEP
    by_length = ((batch, len(batch)) for batch in split_by_tokens(padded, budget, packed))
    for batch, rows in make_equal_batches(padded, budget) if equal else by_length:
        filled = np.pad(batch, (0, rows - len(batch)), mode="edge")
        yield (
            batch,
            model.encode(side, texts.take(filled), template, mode, LENGTH_STEP)[: len(batch)],
        )
        on_batch(lengths[batch])


@torch.inference_mode()
def encode_all(
    model: DualEncoder,
    side: str,
    texts: Ragged,
    template: Template,
    mode: str,
    budget: int,
    dtype: torch.dtype = torch.float32,
    on_batch: Callable[[Ids], object] = len,
    equal: bool = False,
) -> Tensor:
    """Vectors of texts, which `encode_batches` makes.

    A GPU keeps them until the last batch: looking at each one would leave it idle while the next is put together.

    Returns:
        Shape (texts, *model.shape), on the CPU.
    Raises:
        UserError: a number of a vector does not fit.
    """
    shape = model.shape(side, texts.longest + template.extra[0])
    result = torch.zeros((len(texts), *shape), dtype=dtype, device=device())
    largest = torch.zeros((), device=device())
    for rows, vectors in encode_batches(
        model, side, texts, template, mode, budget, on_batch, equal
    ):
        largest = torch.maximum(largest, vectors.abs().max())  # of NaN, NaN
        result[place_array(rows), : vectors.shape[1]] = vectors.to(dtype)
    hint = "train with normalize: true, or look for a diverged model"
    tower: Any = model.towers[side]
    check_range(float(largest), dtype, tower.config.name_or_path, hint)
    return fetch_tensor(result)
