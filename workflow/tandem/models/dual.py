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
from tandem.models.encoding import (
    SIDE_BY_SIDE,
    check_range,
    encode_and_pool,
    make_equal_batches,
)
from tandem.models.folders import LENGTH_STEP
from tandem.models.hub import check_length, load_encoder, save_encoder
from tandem.models.published import check_pooling
from tandem.models.ragged import Ids, Ragged, round_up, split_by_tokens
from tandem.models.saving import (
    INPUT,
    Dense,
    DualShape,
    describe_encoder,
    describe_two_towers,
)
from tandem.models.tokens import Template, TokenTexts
from tandem.store.job import load

SIDES = ("query", "passage")
_PAIRS_PER_BLOCK = 64  # pairs that are scored at once
# Maximum tokens of a batch on a CPU: each batch is computed by one thread, and larger batches were slower.
_CPU_TOKENS = 2048


@representation("single")
class DualEncoder(nn.Module):
    """Encode queries and passages by two towers, or by one for both; here a text is one vector.

    Subclasses represent texts in other ways.

    Args:
        query: the query's tower; if no model reads queries, a module without an encoder.
        passage: the passage tower; if the towers are shared, the same module.
        shape: how vectors and scores are computed. Its fields that follow from the towers are not read.
    Attributes:
        temperature: scores are dot products divided by it.
        dim: how many of a vector's first numbers are kept; None keeps all.
        prompts: text in front of each side's texts. Token ids contain it already; `save` writes it for other libraries.
        options: options of the representation.
        packed: tokens that a packed row is filled up to; None pads texts. Set by `accelerate`.
    """

    options: Representation
    packed: int | None = None
    packs = True  # whether it can read packed texts
    load_tower: Callable[[Path], Any] = staticmethod(load_encoder)
    # returns the lines of a model card that load the model, from its shape and its longest inputs
    usage: Callable[[DualShape, Any], str] | None = None
    reads = INPUT  # name, in sentence-transformers, of the values that its linear layers read
    # the class that trains it on lists, a `training.objectives.dual.DualObjective`
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

        If a representation has new linear layers, they are drawn from torch's generator and begin alike on both sides.

        Args:
            more: `dim`, `prompts`, the options of a `representation`, and `dense`, folders of linear layers within the
                encoder's folder, in order.
        Raises:
            UserError: the encoder or an option does not fit the representation.
        """
        shape = DualShape(shared, pooling, normalize, temperature, **more)
        cls._check_options(folder, shape)
        check_dense(folder, shape.dense)
        model = cls._read(folder, folder, shape)
        model._prepare_start(folder, shape)
        return model

    @classmethod
    def _check_options(cls, folder: Path, shape: DualShape) -> None:
        """Refuse options that the representation does not have, before weights are read; here all are allowed."""

    def _prepare_start(self, folder: Path, shape: DualShape) -> None:
        """Check a model that starts from an encoder, and add its new layers; here: check its pooling and `dim`."""
        check_pooling(self.towers["query"], self.pooling, folder)
        if shape.dim is not None and shape.dim > self.full_dimension:
            raise UserError(
                f"{folder}: dim is {shape.dim}, but its vectors have {self.full_dimension} numbers"
            )

    def _add_layers(self, layers: list[Dense]) -> None:
        """Add new linear layers: if towers are shared the same to both sides, else a copy to the query's."""
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
        """Return the model whose towers are in two folders; if they are shared, only the passage's folder is read."""
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
        """Give the query a copy of the tower if both sides share one; the vectors stay the same until it is trained."""
        if self.shared:
            self.towers["query"] = copy.deepcopy(self.towers["passage"])
            self.dense["query"] = copy.deepcopy(self.dense["passage"])

    def layers(self, side: str) -> list[Dense]:
        """Return a side's linear layers, which stand between pooling and normalization: usually none."""
        return list(cast(nn.ModuleList, self.dense[side]))  # type: ignore[arg-type]

    @property
    def full_dimension(self) -> int:
        """Return how many numbers a vector has before it is cut to `dim`."""
        layers = self.layers("passage")
        if layers:
            return layers[-1].linear.out_features
        tower: Any = self.towers["passage"]
        return int(tower.config.hidden_size)

    @property
    def dimension(self) -> int:
        """Return how many numbers a vector has."""
        return self.dim or self.full_dimension

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write each tower as a folder that transformers and sentence-transformers load; two also form one model."""
        # place of the first linear layer among the modules of sentence-transformers: behind the encoder and the pooling
        first = 2 if self.reads == INPUT else 1
        shape = DualShape(
            self.shared,
            self.pooling,
            self.normalize,
            self.temperature,
            self.dimension,
            self.dim,
            self.prompts,
            dense=[f"{place}_Dense" for place, _ in enumerate(self.layers("passage"), first)],
            representation={} if is_single(self.options) else self.options.model_dump(),
            marked=self.mark(tokenizer),
        )
        for name in ("shared",) if self.shared else SIDES:
            side = "query" if name == "shared" else name
            tower: Any = self.towers[side]
            save_encoder(tower, tokenizer, folder / name)
            # The cut to `dim` is written as one more linear layer: the library's own cut follows normalization.
            cut = [Dense.truncating(self.full_dimension, self.dim)] if self.dim else []
            for place, layer in enumerate([*self.layers(side), *cut], first):
                layer.save(folder / name / f"{place}_Dense")
            self.describe(folder / name, tower.config.hidden_size, shape)
        if not self.shared:
            self.describe_both(folder, shape)
        shape.write(folder)

    def mark(self, tokenizer: Any) -> dict[str, str]:
        """Add markers of queries and passages to a tokenizer, and return them (`DualShape.marked`); here none."""
        return {}

    def describe(self, folder: Path, hidden: int, shape: DualShape) -> None:
        """Write how a tower's folder represents texts, for sentence-transformers; its states have `hidden` numbers."""
        describe_encoder(folder, hidden, shape)

    def describe_both(self, folder: Path, shape: DualShape) -> None:
        """Write the same for the folder of two towers, after each of them is described."""
        describe_two_towers(folder, *SIDES, shape)

    def freeze_heads(self, prepare: Callable[[nn.Linear], nn.Module]) -> None:
        """Prepare the layers above the encoders for inference; here they stay as they are.

        Args:
            prepare: returns a linear layer in its form for inference.
        """

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Return the vectors of some texts.

        Args:
            texts: token ids of each text, without special tokens.
            multiple: pad the length to a multiple of this; without effect where texts are packed.
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
        """Return the shape of a text's representation, to which shorter ones are padded with zeros.

        Args:
            longest: no text has more tokens, special ones included.
        """
        return (self.dimension,)

    def scores(self, queries: Tensor, passages: Tensor) -> Tensor:
        """Return s(q, p) of encoded texts, with gradient: `dot_scores` with this model's temperature."""
        return dot_scores(queries, passages, self.temperature)

    @torch.inference_mode()
    def score(
        self, queries: TokenTexts, passages: TokenTexts, template: Template, mode: str, budget: int
    ) -> Ids:
        """Return s(q, p) of pairs of texts given as token ids, shape (pairs,), float32; equal texts are encoded once.

        Vectors are rounded to fp16 and scored in float64; no bit depends on which pairs are scored together, see
        `make_equal_batches`.
        """
        self.eval()
        vectors = []
        numbers = []
        for side, texts in (("query", Ragged.of(queries)), ("passage", Ragged.of(passages))):
            known: dict[bytes, int] = {}
            # equal texts share a number: the row of their vector
            numbers.append(
                [known.setdefault(texts[row].tobytes(), len(known)) for row in range(len(texts))]
            )
            first = np.unique(numbers[-1], return_index=True)[1]
            vectors.append(
                encode_all(
                    self, side, texts.take(first), template, mode, budget, torch.float16, equal=True
                )
            )
        scores = np.empty(len(numbers[0]), np.float32)
        for start in range(0, len(scores), _PAIRS_PER_BLOCK):
            block = slice(start, start + _PAIRS_PER_BLOCK)
            query = move_to_device(vectors[0][numbers[0][block]]).double()
            passage = move_to_device(vectors[1][numbers[1][block]]).double()
            pairs = self.scores(query, passage[:, None])
            scores[block] = pairs[:, 0].float().cpu().numpy()
        return scores

    def check_lengths(self, query: int, passage: int, template: Template, where: str) -> None:
        """Refuse texts that have, once padded, more tokens than the encoder has positions for.

        Args:
            query, passage: tokens of the longest text of each side, without special tokens.
            where: the folder whose limits these are, for the message.
        """
        padded = round_up(max(query, passage) + template.extra[0], LENGTH_STEP)
        check_length(
            self.towers["passage"], padded, f"{where}: the longer of query and passage, padded,"
        )


def load_dual(folder: Path) -> DualEncoder:
    """Return a saved dual encoder, of the class of its representation.

    Raises:
        UserError: no package here has this representation.
    """
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
        passages: shape (passages, dim) to score each query with all passages; (queries, list, dim) to score each query
            with its own list.
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
    """Encode texts in batches of at most `budget` tokens, on a CPU also at most `_CPU_TOKENS`.

    Which texts share a batch depends only on their lengths.

    Args:
        texts: token ids without special tokens.
        on_batch: called for each batch, after the device has its texts, with their token counts, special tokens
            included.
        equal: make each text's vector independent of the others, by `make_equal_batches`; texts must not be packed.
    Yields:
        The rows of a batch in `texts`, and their vectors by `model.encode`, on the device.
    """
    lengths = np.diff(texts.offsets) + template.extra[0]
    packed = model.packed is not None
    budget = min(budget, _CPU_TOKENS) if device().type == "cpu" else budget
    padded = lengths if packed else round_up(lengths, LENGTH_STEP)
    by_length = ((batch, len(batch)) for batch in split_by_tokens(padded, budget, packed))
    batches = make_equal_batches(padded, budget) if equal else by_length

    def encode(part: tuple[Ids, int]) -> Tensor:
        """Encode a batch, filled up to its number of rows by copies of its last text, whose vectors are dropped."""
        batch, rows = part
        filled = np.pad(batch, (0, rows - len(batch)), mode="edge")
        return model.encode(side, texts.take(filled), template, mode, LENGTH_STEP)[: len(batch)]

    parts = list(batches)
    encoded = load(SIDE_BY_SIDE)(encode, parts)
    for (batch, _), vectors in zip(parts, encoded, strict=True):
        yield batch, vectors
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
    """Return the vectors of all texts, encoded by `encode_batches`.

    Vectors stay on the GPU until the last batch is done: reading each batch would leave the GPU idle before the next.

    Returns:
        Shape (texts, *model.shape), on the CPU.
    Raises:
        UserError: a vector holds nan, or a number that `dtype` cannot hold.
    """
    shape = model.shape(side, texts.longest + template.extra[0])
    result = torch.zeros((len(texts), *shape), dtype=dtype, device=device())
    largest = torch.zeros((), device=device())
    for rows, vectors in encode_batches(
        model, side, texts, template, mode, budget, on_batch, equal
    ):
        largest = torch.maximum(largest, vectors.abs().max())  # NaN if one of them is
        result[place_array(rows), : vectors.shape[1]] = vectors.to(dtype)
    hint = "train with normalize: true, or look for a diverged model"
    tower: Any = model.towers[side]
    check_range(float(largest), dtype, tower.config.name_or_path, hint)
    return fetch_tensor(result)
