"""Query towers without a network: each token of a query has a fixed weight, which is 1 or is read from a file."""

import shutil
from pathlib import Path
from typing import Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PretrainedConfig

from tandem.errors import UserError
from tandem.models.described import StaticQueriesFiles, static_queries
from tandem.models.hub import load_tokenizer, tokenizer_digest
from tandem.models.ragged import Ragged
from tandem.models.saving import modules, router
from tandem.models.weights import WEIGHTS
from tandem.store.files import write_json

QUERIES, POOLING = "query", "1_SpladePooling"


class StaticQueries(nn.Module):
    """The query tower of a model that encodes passages alone: each token of the query has a fixed weight, usually 1.

    Special tokens have none. `weight` is of shape (vocabulary,).
    """

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.config = PretrainedConfig(hidden_size=len(weight))  # without a limit of positions

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The weights that `save_pretrained` wrote, or sentence-transformers."""
        return cls(load_file(folder / WEIGHTS)["weight"].float())

    @classmethod
    def beside(cls, folder: Path, vocabulary: int) -> Self:
        """The weights that an encoder's folder has for queries; 1 for each token where it has none.

        Raises:
            UserError: they are not as many as the vocabulary has entries.
        """
        if (static := static_queries(folder)) is None:
            return cls(torch.ones(vocabulary))
        queries = cls.load(static.queries)
        if len(queries.weight) != vocabulary:
            found = f"{len(queries.weight)} weights of queries' tokens"
            raise UserError(f"{static.queries}: has {found}, but the passages' encoder a vocabulary of {vocabulary}")
        return queries

    def forward(self, texts: Ragged) -> Tensor:
        """Token ids without special tokens → shape (texts, vocabulary)."""
        weight = self.weight
        rows = np.repeat(np.arange(len(texts)), np.diff(texts.offsets))
        at = torch.from_numpy(np.stack([rows, texts.ids.astype(np.int64)])).to(weight.device)
        vectors = weight.new_zeros(len(texts), len(weight))
        vectors[at[0], at[1]] = weight[at[1]]
        # a leaf with a gradient, so that a backward pass through it ends here
        return vectors.requires_grad_(torch.is_grad_enabled())

    def save_pretrained(self, folder: Path) -> None:
        """Write what sentence-transformers loads as a SparseStaticEmbedding."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"weight": self.weight.cpu()}, folder / WEIGHTS)
        write_json(folder / "config.json", {"frozen": True})


def adopt_static(static: StaticQueriesFiles, folder: Path) -> None:
    """Put weights of queries' tokens beside the passages' encoder that is copied to `folder` already.

    The folder is then what sentence-transformers loads, wherever the parts lay before.

    Raises:
        UserError: queries have another tokenizer than passages.
    """
    own, theirs = (tokenizer_digest(load_tokenizer(at).backend_tokenizer.to_str()) for at in (folder, static.queries))
    if own != theirs:
        raise UserError(f"{static.queries}: its tokenizer is not that of the passages, which is not computed here")
    (folder / QUERIES).mkdir()
    for path in sorted([*static.queries.glob("*.json"), *static.queries.glob("*.txt"), static.queries / WEIGHTS]):
        shutil.copyfile(path, folder / QUERIES / path.name)
    (folder / POOLING).mkdir(exist_ok=True)
    shutil.copyfile(static.pooling / "config.json", folder / POOLING / "config.json")
    parts = {QUERIES: "SparseStaticEmbedding"}, {"": "Transformer", POOLING: "SpladePooling"}
    write_json(folder / "modules.json", modules(["Router"]))
    write_json(folder / "router_config.json", router(*parts))
