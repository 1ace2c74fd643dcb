"""Fixed weights of query tokens instead of a network: the tower, its side of a dual encoder, and its files."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tandem.contrib.term_weights.sparse_folders import find_static_queries
from tandem.errors import UserError
from tandem.models.dual import DualEncoder
from tandem.models.folders import WEIGHTS_FILE
from tandem.models.hub import hash_tokenizer, load_tokenizer
from tandem.models.ragged import Ragged
from tandem.models.saving import MODULE_TYPES, Dense, DualShape, describe_router
from tandem.store.files import write_json

_QUERIES = "query"
POOLING = "1_SpladePooling"
SPARSE_MODULES: Mapping[str, str] = {
    **MODULE_TYPES,
    "SpladePooling": "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling",
    "SparseStaticEmbedding": "sentence_transformers.sparse_encoder.modules.sparse_static_embedding"
    ".SparseStaticEmbedding",
}


def locate_terms(texts: Ragged, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return two arrays with an element for each token of the texts: the row of its text, and its term."""
    rows = np.repeat(np.arange(len(texts)), np.diff(texts.offsets))
    terms = texts.ids.astype(np.int64)
    return torch.from_numpy(rows).to(device), torch.from_numpy(terms).to(device)


class StaticQueries(nn.Module):
    """A query tower without a network: each token has a fixed weight, usually 1; special tokens have none.

    `weight` is of shape (vocabulary,).
    """

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        from transformers import PretrainedConfig

        super().__init__()
        self.register_buffer("weight", weight)
        self.config = PretrainedConfig(hidden_size=len(weight))  # without a limit of positions

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the weights that `save_pretrained` or sentence-transformers wrote."""
        return cls(load_file(folder / WEIGHTS_FILE)["weight"].float())

    @classmethod
    def beside(cls, folder: Path, vocabulary: int) -> Self:
        """Return the weights of query tokens in an encoder's folder; 1 for each token if it has none.

        Raises:
            UserError: the number of weights is not the size of the vocabulary.
        """
        static = find_static_queries(folder)
        if static is None:
            return cls(torch.ones(vocabulary))
        queries = cls.load(static.queries)
        if len(queries.weight) != vocabulary:
            size = f"{len(queries.weight)} weights of queries' tokens"
            raise UserError(
                f"{static.queries}: has {size}, but the passages' encoder a vocabulary of {vocabulary}"
            )
        return queries

    def forward(self, texts: Ragged) -> Tensor:
        """Return weights of texts, shape (texts, vocabulary), from token ids without special tokens."""
        weight = self.weight
        rows, terms = locate_terms(texts, weight.device)
        vectors = weight.new_zeros(len(texts), len(weight))
        vectors[rows, terms] = weight[terms]
        # a leaf with a gradient, so that a backward pass through it ends here
        return vectors.requires_grad_(torch.is_grad_enabled())

    def save_pretrained(self, folder: Path) -> None:
        """Write a folder that sentence-transformers loads as a SparseStaticEmbedding."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"weight": self.weight.cpu()}, folder / WEIGHTS_FILE)
        write_json(folder / "config.json", {"frozen": True})


class StaticSide(DualEncoder):
    """A dual encoder in which no model reads queries if the option `queries` is `tokens`."""

    @classmethod
    def _read(cls, query: Path, passage: Path, shape: DualShape) -> Self:
        """Return the towers of two folders; if the query tower is static, only the passage's folder is read."""
        if shape.representation.get("queries") != "tokens":
            return super()._read(query, passage, shape)
        model = super()._read(query, passage, replace(shape, shared=True))
        model.towers["query"] = StaticQueries(torch.ones(model.full_dimension))
        model.dense["query"] = nn.ModuleList()
        return model

    def _add_layers(self, layers: list[Dense]) -> None:
        """Add the layers, but none for queries that no model reads."""
        super()._add_layers(layers)
        if isinstance(self.towers["query"], StaticQueries):
            self.dense["query"] = nn.ModuleList()


def adopt_static(source: Path, folder: Path) -> bool:
    """Copy the weights of query tokens from `source` to `folder`, which already holds a copy of the passages' encoder.

    sentence-transformers can then load the folder, wherever the parts were in `source`. Returns False whether `source`
    has such weights or not: encoders read all other folders.

    Raises:
        UserError: queries have another tokenizer than passages.
    """
    static = find_static_queries(source)
    if static is None:
        return False
    own, theirs = (
        hash_tokenizer(load_tokenizer(at).backend_tokenizer.to_str())
        for at in (folder, static.queries)
    )
    if own != theirs:
        raise UserError(
            f"{static.queries}: its tokenizer is not that of the passages, which is not computed here"
        )
    (folder / _QUERIES).mkdir()
    for path in sorted(
        [
            *static.queries.glob("*.json"),
            *static.queries.glob("*.txt"),
            static.queries / WEIGHTS_FILE,
        ]
    ):
        shutil.copyfile(path, folder / _QUERIES / path.name)
    (folder / POOLING).mkdir(exist_ok=True)
    shutil.copyfile(static.pooling / "config.json", folder / POOLING / "config.json")
    query = {_QUERIES: "SparseStaticEmbedding"}
    passage = {"": "Transformer", POOLING: "SpladePooling"}
    describe_router(folder, query, passage, SPARSE_MODULES)
    return False
