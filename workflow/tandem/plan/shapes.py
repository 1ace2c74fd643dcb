"""How large an encoder is and what it computes: from its artifact, its package or folder, or its entry."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from tandem.config.encoders import Encoder, PublishedEncoder
from tandem.errors import UserError
from tandem.models.hub import package_folder
from tandem.plan.graph import Stage

# transformers' families call the same numbers by different names.
NAMES = {
    "layers": ("num_hidden_layers", "n_layers"),
    "hidden": ("hidden_size", "dim"),
    "feed_forward": ("intermediate_size", "hidden_dim"),
    "vocabulary": ("vocab_size",),
    "positions": ("max_position_embeddings",),
}


@dataclass(frozen=True)
class Shape:
    """An encoder's sizes."""

    layers: int
    hidden: int
    feed_forward: int
    vocabulary: int
    positions: int = 512

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The shape in a Hugging Face `config.json`; a KeyError naming the number that it lacks."""
        sizes = {}
        for name, keys in NAMES.items():
            present = [config[key] for key in keys if key in config]
            if not present and name != "positions":
                raise KeyError(keys[0])
            if present:
                sizes[name] = int(present[0])
        return cls(**sizes)

    @property
    def parameters(self) -> int:
        """Weights of BERT without its pooling layer: embeddings (two segments), matrices, biases and norms."""
        h, f = self.hidden, self.feed_forward
        layer = 4 * h * h + 2 * h * f + 9 * h + f
        return (self.vocabulary + self.positions + 4) * h + self.layers * layer

    def forward(self, texts: float, tokens: float) -> float:
        """Floating-point operations of one forward pass; a multiplication and its addition count as two.

        2 (4 h² + 2 h f) per token and layer for the matrix products, 4 n h for attention over n tokens (Kaplan et al.
        2020, App. A, with attention in full); a backward pass costs twice as many again.

        Args:
            texts: number of texts (or pairs).
            tokens: their mean length, special tokens included.
        """
        h, f = self.hidden, self.feed_forward
        return texts * tokens * self.layers * (2 * (4 * h * h + 2 * h * f) + 4 * tokens * h)

    def activations(self, tokens: float, length: float, bytes_each: int = 2) -> float:
        """Bytes of the activations that the backward pass of so many tokens in texts of `length` needs.

        Per token and layer about 34 h bytes at two bytes a number, and 5 n a with attention in full (Korthikanti et al.
        2022, Eq. 1); heads are of 64 dimensions.
        """
        heads = max(1, self.hidden // 64)
        return tokens * self.layers * (17 * self.hidden + 2.5 * length * heads) * bytes_each


def encoder_of(stage: Stage) -> Stage:
    """The stage that decides an encoder's sizes: that behind token ids, or what a pre-trained one started from."""
    for role in ("encoder", "start"):
        if role in stage.upstream:
            return encoder_of(stage.upstream[role])
    return stage


def shape_of(stage: Stage, entries: Mapping[str, Encoder]) -> Shape:
    """An encoder's sizes.

    Args:
        stage: an encoder's stage, or the token ids of its tokenizer.
        entries: the configuration's `encoders`: an entry's `shape` has the sizes of an encoder that is not here yet.
    Raises:
        UserError: its sizes are unknown.
    """
    encoder = encoder_of(stage)
    params = encoder.values
    if all(params.get(key) is not None for key in NAMES):  # its vocabulary is learned here
        return Shape(*(int(params[key]) for key in NAMES))
    folders = [Path(encoder.folder) / "hf"] if Path(encoder.manifest).is_file() else []
    if params.get("source") == "package":
        folders.append(package_folder(params["package"], params.get("folder", "")))
    if "path" in encoder.execution:
        folders.append(Path(encoder.execution["path"]))
    for folder in folders:
        if (folder / "config.json").is_file():
            return _first_layers(Shape.of(json.loads((folder / "config.json").read_text())), params)
    for entry in entries.values():
        if not isinstance(entry, PublishedEncoder) or not entry.shape:
            continue
        if (entry.name or entry.package) == params.get("name", params.get("package")):
            return _first_layers(Shape(**entry.shape.model_dump()), params)
    raise UserError(
        f"encoder {encoder.name}: its sizes are not known here; make it (`snakemake {encoder.manifest}`), or say "
        f"encoders.<name>.shape: {{layers, hidden, feed_forward, vocabulary}}"
    )


def _first_layers(shape: Shape, params: Mapping[str, Any]) -> Shape:
    """The sizes of an encoder of which only the first `layers` are used."""
    return replace(shape, layers=min(shape.layers, params.get("layers") or shape.layers))
