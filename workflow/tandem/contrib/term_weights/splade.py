"""Learned sparse encoders: a text becomes one weight for each entry of the vocabulary; most weights are 0."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from scipy.sparse import csr_array, vstack
from torch import Tensor, nn

from tandem.config.representations import representation
from tandem.contrib.term_weights.options import GatedTerms, SparseTerms
from tandem.contrib.term_weights.static_queries import (
    POOLING,
    SPARSE_MODULES,
    StaticQueries,
    StaticSide,
)
from tandem.errors import UserError
from tandem.extras.own_tokens import refuse_single
from tandem.models.device import place_all, precision
from tandem.models.dual import SIDES
from tandem.models.encoding import check_range
from tandem.models.hub import check_weights, from_folder
from tandem.models.ragged import Ids, Ragged
from tandem.models.saving import (
    LIBRARY_CONFIG,
    TRANSFORMER,
    DualShape,
    describe_router,
    list_modules,
    make_model_config,
)
from tandem.models.tokens import Template, TokenTexts
from tandem.store.files import write_json

LOGITS = 1 << 27  # numbers in the largest array: tokens times the vocabulary
# Number of terms whose logits are computed and pooled at once: for a batch, these fit into the cache. A multiple of
# 64, so that torch sums a term's tokens in the same order as it does over the whole vocabulary.
TERMS = 512
# Families whose head ends with a linear layer, whose outputs are the logits.
LINEAR_HEADS = (
    "albert",
    "bert",
    "camembert",
    "distilbert",
    "electra",
    "ernie",
    "modernbert",
    "mpnet",
    "roberta",
    "xlm-roberta",
)
_FILL_MASK: dict[str, object] = {
    **TRANSFORMER,
    "transformer_task": "fill-mask",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
}


def load_masked_lm(folder: Path) -> Any:
    """Return the folder's encoder with its head that predicts tokens, in float32.

    Raises:
        UserError: it has no such head.
    """
    from transformers import AutoModelForMaskedLM

    model, report = from_folder(AutoModelForMaskedLM, folder)
    if report["missing_keys"]:
        hint = "pre-train one: an entry of encoders with source: pretrain, objective: mlm and this encoder as start"
        raise UserError(
            f"{folder}: has no language-modelling head, which representation: sparse needs; {hint}"
        )
    check_weights(folder, report)
    return model


@representation("sparse")
class SparseEncoder(StaticSide):
    """SPLADE (Formal et al. 2021): the logits of a masked language model weigh the terms that a text is about.

    w_j = max_i log(1 + ReLU(logit_ij)) over the text's tokens i, special ones included (SPLADE v2, Eq. 6), or their sum
    (SPLADE, Eq. 1). The score is the dot product of the query's and the passage's weights.

    Towers are masked language models; the queries' may be `StaticQueries`.
    """

    options: SparseTerms | GatedTerms
    packs = False  # the logits of packed rows would have to be split by text again
    load_tower = staticmethod(load_masked_lm)

    def __init__(self, query: nn.Module, passage: nn.Module, shape: DualShape) -> None:
        super().__init__(query, passage, shape)
        # by side, in parts of the vocabulary; filled by `freeze_heads`
        self.last_layers = nn.ModuleDict()

    @classmethod
    def _read(cls, query: Path, passage: Path, shape: DualShape) -> Self:
        """Return the towers of two folders; static weights of queries come from `query`, or from the start's folder."""
        model = super()._read(query, passage, shape)
        if isinstance(model.towers["query"], StaticQueries):
            saved = query != passage
            model.towers["query"] = (
                StaticQueries.load(query)
                if saved
                else StaticQueries.beside(passage, model.full_dimension)
            )
        return model

    @classmethod
    def _check_options(cls, folder: Path, shape: DualShape) -> None:
        refuse_single(folder, shape)

    def _prepare_start(self, folder: Path, shape: DualShape) -> None:
        """Do nothing: the encoder has its head already, and no layers are added."""

    @property
    def full_dimension(self) -> int:
        """Return how many numbers a vector has: entries of the vocabulary."""
        tower: Any = self.towers["passage"]
        return int(tower.config.vocab_size)

    def describe(self, folder: Path, hidden: int, shape: DualShape) -> None:
        """Add the files of a SparseEncoder to a tower's folder, unless it holds static weights of queries."""
        if folder.name == "query" and self.options.queries == "tokens":
            return
        pooling = {
            "pooling_strategy": self.options.pooling,
            "activation_function": self.options.activation,
        }
        write_json(folder / "sentence_bert_config.json", _FILL_MASK)
        write_json(
            folder / POOLING / "config.json",
            pooling | {"embedding_dimension": self.dimension},
        )
        write_json(
            folder / "modules.json", list_modules(["Transformer", "SpladePooling"], SPARSE_MODULES)
        )
        self._configure(folder)

    def describe_both(self, folder: Path, shape: DualShape) -> None:
        """Write such files for the folder of two towers; static weights of queries have a folder of their own."""
        query, passage = (
            {side: "Transformer", f"{side}/{POOLING}": "SpladePooling"} for side in SIDES
        )
        static = self.options.queries == "tokens"
        if static:
            query = {"query": "SparseStaticEmbedding"}
        describe_router(folder, query, passage, SPARSE_MODULES)
        self._configure(folder)

    def _configure(self, folder: Path) -> None:
        top = {"max_active_dims": self.options.top} if self.options.top else {}
        write_json(
            folder / LIBRARY_CONFIG,
            make_model_config(self.prompts) | {"model_type": "SparseEncoder"} | top,
        )

    def freeze_heads(self, prepare: Callable[[nn.Linear], nn.Module]) -> None:
        """Remove the last layer of each tower's head and split it into parts of `TERMS` terms, which `encode` pools.

        The logits of all terms are never in memory together. The model can no longer be trained or saved.
        Heads of families that are not in `LINEAR_HEADS` stay whole.

        Args:
            prepare: prepares a part for inference and returns it.
        """
        taken: dict[nn.Module, nn.ModuleList] = {}
        for side, tower in self.towers.items():
            config: Any = tower.config
            if isinstance(tower, StaticQueries) or config.model_type not in LINEAR_HEADS:
                continue
            if tower not in taken:
                taken[tower] = nn.ModuleList(
                    prepare(part) for part in split_layer(take_last_layer(tower), TERMS)
                )
            self.last_layers[side] = taken[tower]

    def encode(
        self, side: str, texts: TokenTexts, template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Return weights of texts, in batches whose logits fit into memory; see `DualEncoder.encode`.

        Returns:
            Shape (texts, vocabulary), float32, not negative.
        """
        tower = self.towers[side]
        if isinstance(tower, StaticQueries):
            return tower(Ragged.of(texts))  # type: ignore[no-any-return]

        inputs = place_all(template.single_inputs(texts, side).to_tensors(multiple))
        vectors = self.weigh(side, inputs, mode, self.options.pooling, self.options.activation)
        vectors = self.choose_terms(vectors, side, Ragged.of(texts), inputs, mode)
        return keep_largest(vectors, self.options.top) if self.options.top else vectors

    def weigh(
        self, name: str, inputs: dict[str, Tensor], mode: str, pooling: str, activation: str
    ) -> Tensor:
        """Return the weights of terms from a tower's logits; see `weigh_terms`.

        Args:
            name: the tower's name: a side, or an additional tower of a subclass.
            inputs: the tower's inputs, shape (texts, tokens) each.
        Returns:
            Shape (texts, vocabulary), float32.
        """
        tower = self.towers[name]
        layers = cast(nn.ModuleList, self.last_layers[name]) if name in self.last_layers else None

        def compute(part: dict[str, Tensor]) -> Tensor:
            """Return the weights of some of the texts."""
            with precision(mode):
                outputs = tower(**part).logits
            mask = part["attention_mask"]
            if layers is None:
                return weigh_terms(outputs, mask, pooling, activation)
            return weigh_terms_by_parts(outputs, mask, layers, pooling, activation)

        return compute_in_rows(compute, inputs, self.dimension if layers is None else TERMS)

    def choose_terms(
        self, weights: Tensor, side: str, texts: Ragged, inputs: dict[str, Tensor], mode: str
    ) -> Tensor:
        """Return the weights of texts, shape (texts, vocabulary), with 0 for terms that a text may not have."""
        return weights


def take_last_layer(tower: nn.Module) -> nn.Linear:
    """Remove and return the linear layer that computes a tower's logits; the tower then returns that layer's inputs."""
    model: Any = tower
    last: nn.Linear = model.get_output_embeddings()
    for parent in tower.modules():
        for name, child in list(parent.named_children()):
            if child is last:
                setattr(parent, name, nn.Identity())
    return last


def split_layer(layer: nn.Linear, outputs: int) -> Iterator[nn.Linear]:
    """Split a layer into several that share its weights; each computes a part of its outputs, in order."""
    for start in range(0, layer.out_features, outputs):
        rows = slice(start, start + outputs)
        part = nn.Linear(
            layer.in_features, len(layer.weight[rows]), layer.bias is not None, device="meta"
        )
        part.weight = nn.Parameter(layer.weight[rows].detach(), requires_grad=False)
        if layer.bias is not None:
            part.bias = nn.Parameter(layer.bias[rows].detach(), requires_grad=False)
        yield part


def weigh_terms(
    logits: Tensor, mask: Tensor | None, pooling: str, activation: str = "relu"
) -> Tensor:
    """w_j = max_i f(logit_ij), or Σ_i f(logit_ij), with f(x) = log(1 + ReLU(x)) (Formal et al. 2021).

    Args:
        logits: of a text's tokens over the vocabulary, shape (texts, length, vocabulary).
        mask: 1 for tokens and 0 for padding, shape (texts, length); None: there is no padding.
        activation: `log1p_relu`: f(x) = log(1 + log(1 + ReLU(x))), as in OpenSearch's models (Geng et al. 2025);
            `none`: f(x) = ReLU(x).
    Returns:
        Shape (texts, vocabulary), float32 at least.
    """
    # f is monotone: the largest weight comes from the largest logit, the only one that is kept
    if pooling == "max":
        return _activate(take_highest(logits, mask), activation)
    weights = _activate(widen(logits), activation)
    return (weights if mask is None else weights.masked_fill(mask[..., None] == 0, 0.0)).sum(1)


def take_highest(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return max_i logit_ij over the tokens i of each text; arguments and shape as in `weigh_terms`."""
    if mask is not None:
        logits = logits.masked_fill(mask[..., None] == 0, -torch.inf)
    # amax is several times faster, but would share the gradient among equal logits.
    highest = logits.max(1).values if logits.requires_grad else logits.amax(1)
    return widen(highest)


def widen(values: Tensor) -> Tensor:
    """Return values in float32 at least."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def weigh_terms_by_parts(
    states: Tensor,
    mask: Tensor,
    layers: Iterable[nn.Module],
    pooling: str,
    activation: str = "relu",
) -> Tensor:
    """Return the result of `weigh_terms` from the inputs of the last layer, a part of the vocabulary at a time.

    Args:
        states: of a text's tokens, shape (texts, length, hidden).
        layers: each computes the logits of some terms; in the vocabulary's order.
        mask, pooling, activation: as in `weigh_terms`.
    Returns:
        Shape (texts, vocabulary), float32 at least.
    """
    tokens = mask == 1
    if pooling == "sum":
        return torch.cat(
            [weigh_terms(layer(states), mask, pooling, activation) for layer in layers], dim=1
        )
    # Padding becomes copies of the text's first token, which change no maximum. To fill the states costs less than to
    # fill the logits, which are more numbers.
    filled = states.where(tokens[..., None], states[:, :1])
    weights = torch.cat(
        [weigh_terms(layer(filled), None, pooling, activation) for layer in layers], dim=1
    )
    return weights.masked_fill_(~tokens.any(1)[:, None], 0.0)  # a text without tokens


def compute_in_rows(
    compute: Callable[[dict[str, Tensor]], Tensor], inputs: dict[str, Tensor], width: int
) -> Tensor:
    """Return vectors of texts, shape (texts, width), in batches small enough to hold `width` numbers for each token.

    `inputs` are of shape (texts, tokens, …) each, and `compute` takes some of the texts.
    """
    first = next(iter(inputs.values()))
    if not len(first):
        return first.new_zeros(0, width, dtype=torch.float32)
    rows = max(1, LOGITS // max(1, first.shape[1] * width))
    parts = zip(*(tensor.split(rows) for tensor in inputs.values()), strict=True)
    return torch.cat([compute(dict(zip(inputs, part, strict=True))) for part in parts])


def _activate(logits: Tensor, activation: str) -> Tensor:
    if activation == "none":
        return logits.relu()
    weights = logits.relu().log1p()
    return weights.log1p() if activation == "log1p_relu" else weights


def keep_largest(vectors: Tensor, top: int) -> Tensor:
    """Return vectors of shape (texts, dim) with all but each text's `top` largest weights set to 0."""
    values, at = vectors.topk(min(top, vectors.shape[1]), dim=1)
    return torch.zeros_like(vectors).scatter(1, at, values)


def join_sparse_rows(
    batches: Iterable[tuple[Ids, Tensor]],
    dimension: int,
    dtype: torch.dtype = torch.float32,
    where: str = "",
) -> csr_array:
    """Return the non-negative weights that `encode_batches` yields as a sparse matrix; `where` is the model's folder.

    Returns:
        Shape (texts, dimension), float32: the weights that are not 0, rounded to `dtype`; each row is in the order of
        the vocabulary.
    Raises:
        UserError: a weight does not fit into `dtype`.
    """
    parts = [csr_array((0, dimension), dtype=np.float32)]
    order: list[Ids] = [np.empty(0, np.int64)]
    for rows, vectors in batches:
        check_range(float(vectors.max()), dtype, where, "look for a diverged model")
        parts.append(csr_array(vectors.to(dtype).float().cpu().numpy()))
        order.append(rows)
    in_order = vstack(parts, format="csr")[np.argsort(np.concatenate(order))]
    in_order.sort_indices()
    return in_order
