"""Learned sparse encoders: a text becomes one weight for each entry of the vocabulary, and most of them are 0."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import csr_array, vstack
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM

from tandem.config.representations import SparseTerms, representation
from tandem.errors import UserError
from tandem.models.device import place, precision
from tandem.models.dual import SIDES, DualEncoder, read_shape
from tandem.models.hub import check_folder, loading, save_encoder
from tandem.models.ragged import Ids, Ragged
from tandem.models.saving import CONFIG, TRANSFORMER, DualShape, model_config, modules, plain_shape, router
from tandem.models.static_queries import StaticQueries
from tandem.models.tokens import Template, Texts
from tandem.models.usage import Lengths
from tandem.store.files import write_json

LOGITS = 1 << 27  # numbers of the largest array: tokens times the vocabulary
SPLADE = "1_SpladePooling"
FILL_MASK: dict[str, object] = {
    **TRANSFORMER,
    "transformer_task": "fill-mask",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
}


def sparse_usage(shape: DualShape, lengths: Lengths) -> str:
    """How to load the sparse encoder of a `dual.json`; the block ends with `scores`, shape (queries, passages)."""
    passage, query = (tokens + lengths.single for tokens in (lengths.passage, lengths.query))
    return f"""\
```python
from sentence_transformers import SparseEncoder

model = SparseEncoder("{"dual/shared" if shape.shared else "dual"}")
model.max_seq_length = {passage}  # of a passage; queries were cut to {query}
queries, passages = model.encode_query(["a query"]), model.encode_document(["a passage"])
scores = model.similarity(queries, passages) / {shape.temperature}
```"""


@representation("sparse")
class SparseEncoder(DualEncoder):
    """SPLADE (Formal et al. 2021): the logits of a masked language model say which terms a text is about.

    w_j = max_i log(1 + ReLU(logit_ij)) over the text's tokens i, special ones included (SPLADE v2, Eq. 6), or their sum
    (SPLADE, Eq. 1). The score is the dot product of the query's and the passage's weights.

    Args:
        query, passage: masked language models, one for both sides or two; `query` may be `StaticQueries`.
    """

    usage = staticmethod(sparse_usage)
    packs = False  # logits of packed rows would be cut by text again

    def __init__(self, query: nn.Module, passage: nn.Module, shape: DualShape) -> None:
        options = SparseTerms.model_validate(dict(shape.representation))
        super().__init__(query, passage, options.pooling, False, shape.temperature, None, shape.prompts)
        self.options = options

    @classmethod
    def start(cls, folder: Path, shared: bool, pooling: str, normalize: bool, temperature: float, **more: Any) -> Self:
        """A sparse encoder from a folder with a masked language model: both towers start from the same weights.

        Raises:
            UserError: the folder has no such model, or the model's keys are of single vectors.
        """
        shape = DualShape(shared, pooling, normalize, temperature, **more)
        check_start(folder, shape)
        return cls._read(folder, folder, shape)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The sparse encoder that `save` wrote."""
        shape = read_shape(folder)
        if shape.representation["queries"] == "tokens":
            return cls(StaticQueries.load(folder / "query"), load_masked_lm(folder / "passage"), shape)
        query, passage = ("shared", "shared") if shape.shared else SIDES
        return cls._read(folder / query, folder / passage, shape)

    @classmethod
    def _read(cls, query: Path, passage: Path, shape: DualShape) -> Self:
        """The towers of two folders; of the query's nothing is read where it is shared or static."""
        tower = load_masked_lm(passage)
        if shape.representation["queries"] == "tokens":
            return cls(StaticQueries.beside(passage, tower.config.vocab_size), tower, shape)
        return cls(tower if shape.shared else load_masked_lm(query), tower, shape)

    @property
    def whole(self) -> int:
        """How many numbers a vector has: entries of the vocabulary."""
        tower: Any = self.towers["passage"]
        return int(tower.config.vocab_size)

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write what sentence-transformers loads as a SparseEncoder: a folder for each tower, and two together as one.

        A static query tower has a folder with its weights.
        """
        static = self.options.queries == "tokens"
        for name in ("shared",) if self.shared else SIDES[1:] if static else SIDES:
            tower: Any = self.towers["passage" if name == "shared" else name]
            save_encoder(tower, tokenizer, folder / name)
            write_json(folder / name / "sentence_bert_config.json", FILL_MASK)
            pooling = {"pooling_strategy": self.pooling, "activation_function": self.options.activation}
            write_json(folder / name / SPLADE / "config.json", pooling | {"embedding_dimension": self.dimension})
            write_json(folder / name / "modules.json", modules(["Transformer", "SpladePooling"]))
            write_json(folder / name / CONFIG, self._config())
        if static:
            save_encoder(self.towers["query"], tokenizer, folder / "query")
        if not self.shared:
            encoded = {side: {side: "Transformer", f"{side}/{SPLADE}": "SpladePooling"} for side in SIDES}
            query = {"query": "SparseStaticEmbedding"} if static else encoded["query"]
            write_json(folder / "modules.json", modules(["Router"]))
            write_json(folder / "router_config.json", router(query, encoded["passage"]))
            write_json(folder / CONFIG, self._config())
        options = self.options.model_dump()
        shape = DualShape(*(self.shared, "max", False, self.temperature, self.dimension), prompts=self.prompts)
        write_json(folder / "dual.json", plain_shape(replace(shape, representation=options)))

    def _config(self) -> dict[str, object]:
        """`config_sentence_transformers.json`."""
        config = model_config(self.prompts) | {"model_type": "SparseEncoder"}
        return config | ({"max_active_dims": self.options.top} if self.options.top else {})

    def encode(self, side: str, texts: Texts, template: Template, mode: str, multiple: int = 1) -> Tensor:
        """Weights of texts, as many texts at a time as keep the logits in memory; see `DualEncoder.encode`.

        Returns:
            Shape (texts, vocabulary), float32, not negative.
        """
        tower, texts = self.towers[side], Ragged.of(texts)
        if isinstance(tower, StaticQueries):
            return tower(texts)  # type: ignore[no-any-return]
        titled = template.titled and side == "passage"
        inputs = {key: place(row) for key, row in template.single_inputs(texts, titled).padded(multiple).items()}
        vectors = in_rows(lambda part: self._weights(tower, part, mode), inputs, self.dimension)
        return largest(vectors, self.options.top) if self.options.top else vectors

    def _weights(self, tower: nn.Module, inputs: Mapping[str, Tensor], mode: str) -> Tensor:
        with precision(mode):
            logits = tower(**inputs).logits
        return splade(logits, inputs["attention_mask"], self.pooling, self.options.activation)


def check_start(folder: Path, shape: DualShape) -> None:
    """Refuse what only single vectors have: another pooling, length 1, fewer numbers, further layers."""
    own = {"pooling": shape.pooling != "max", "normalize": shape.normalize, "dim": shape.dim, "dense": shape.dense}
    if refused := [name for name, value in own.items() if value]:
        hint = f"leave it out; what {shape.type} has is in `representation: {{type: {shape.type}, …}}`"
        raise UserError(f"{folder}: {refused[0]} is of single vectors, but representation is {shape.type}; {hint}")


def splade(logits: Tensor, mask: Tensor, pooling: str, activation: str = "relu") -> Tensor:
    """w_j = max_i f(logit_ij), or Σ_i f(logit_ij), with f(x) = log(1 + ReLU(x)) (Formal et al. 2021).

    Args:
        logits: of a text's tokens over the vocabulary, shape (texts, length, vocabulary).
        mask: 1 for tokens and 0 for padding, shape (texts, length).
        activation: `log1p_relu`: f(x) = log(1 + log(1 + ReLU(x))), of OpenSearch's models (Geng et al. 2025).
    Returns:
        Shape (texts, vocabulary), float32 at least.
    """
    wide, padding = torch.promote_types(logits.dtype, torch.float32), mask[..., None] == 0
    if pooling == "max":  # f grows: the largest weight is that of the largest logit, and no more than it is kept
        return _logarithm(logits.masked_fill(padding, -torch.inf).max(1).values.to(wide), activation)
    return _logarithm(logits.to(wide), activation).masked_fill(padding, 0.0).sum(1)


def in_rows(compute: Callable[[dict[str, Tensor]], Tensor], inputs: dict[str, Tensor], width: int) -> Tensor:
    """Vectors of texts, as many texts at a time as keep their tokens' `width` numbers each in memory.

    Args:
        compute: vectors of some of the texts, shape (texts, width).
        inputs: each of shape (texts, tokens, …).
    """
    first = next(iter(inputs.values()))
    if not len(first):
        return first.new_zeros(0, width, dtype=torch.float32)
    rows = max(1, LOGITS // max(1, first.shape[1] * width))
    parts = zip(*(tensor.split(rows) for tensor in inputs.values()), strict=True)
    return torch.cat([compute(dict(zip(inputs, part, strict=True))) for part in parts])


def winners(logits: Tensor, mask: Tensor, count: int) -> Tensor:
    """w_j = max_i ReLU(z_ij) over the tokens i of which z_ij is among the `count` largest numbers.

    No gradient reaches numbers that lose.

    Args:
        logits: z, shape (texts, tokens, width).
        mask: whether a token counts, shape (texts, tokens).
    Returns:
        Shape (texts, width), float32 at least.
    """
    values, at = logits.topk(min(count, logits.shape[-1]), dim=-1)
    values = values.to(torch.promote_types(logits.dtype, torch.float32)).relu() * mask[..., None]
    vectors = values.new_zeros(logits.shape[0], logits.shape[-1])
    return vectors.scatter_reduce(1, at.flatten(1), values.flatten(1), "amax")


def _logarithm(logits: Tensor, activation: str) -> Tensor:
    weights = logits.relu().log1p()
    return weights.log1p() if activation == "log1p_relu" else weights


def largest(vectors: Tensor, top: int) -> Tensor:
    """Vectors of shape (texts, dim) with all but each text's `top` largest weights set to 0."""
    values, at = vectors.topk(min(top, vectors.shape[1]), dim=1)
    return torch.zeros_like(vectors).scatter(1, at, values)


def load_masked_lm(folder: Path) -> Any:
    """The folder's encoder with its head that predicts tokens, in float32.

    Raises:
        UserError: the folder has no such head, or is not loaded at all.
    """
    check_folder(folder)
    options: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}
    with loading(folder):
        model, report = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True, **options)
    if report["missing_keys"]:
        hint = "pre-train one: an entry of encoders with source: pretrain, objective: mlm and this encoder as start"
        raise UserError(f"{folder}: has no language-modelling head, which representation: sparse needs; {hint}")
    return model


def sparse_rows(batches: Iterable[tuple[Ids, Tensor]], dimension: int, dtype: torch.dtype = torch.float32) -> csr_array:
    """The weights that `encode_batches` makes, which are not below 0.

    Returns:
        Shape (texts, dimension), float32, the weights that are not 0, rounded to `dtype`, each row's in the order of
        the vocabulary.
    Raises:
        UserError: a weight does not fit into `dtype`.
    """
    parts, limit = [csr_array((0, dimension), dtype=np.float32)], torch.finfo(dtype).max
    order: list[Ids] = [np.empty(0, np.int64)]
    for rows, vectors in batches:
        if not float(vectors.max()) <= limit:
            raise UserError(
                f"term_weights: a weight is {float(vectors.max()):g}, {str(dtype)[6:]} ends at {limit:g}; look for a "
                "diverged model"
            )
        parts.append(csr_array(vectors.to(dtype).float().cpu().numpy()))
        order.append(rows)
    return in_order(parts, np.concatenate(order))


def in_order(parts: Sequence[csr_array], order: Ids) -> csr_array:
    """Rows that were computed in another order, in their own: row `order[i]` is the i-th of the parts' rows."""
    rows = vstack(parts, format="csr")[np.argsort(order)]
    rows.sort_indices()
    return rows
