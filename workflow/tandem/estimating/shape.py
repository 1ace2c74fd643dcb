"""How large an encoder is and what it computes, from its configuration alone."""

from dataclasses import dataclass
from typing import Any, Self

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
    def of(cls, config: dict[str, Any]) -> Self:
        """The shape a Hugging Face `config.json` tells; a KeyError naming the number that it lacks."""
        found = {}
        for name, keys in NAMES.items():
            present = [config[key] for key in keys if key in config]
            if not present and name != "positions":
                raise KeyError(keys[0])
            if present:
                found[name] = int(present[0])
        return cls(**found)

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
        """Bytes kept for the backward pass of so many tokens in texts of `length`.

        Per token and layer about 34 h bytes at two bytes a number, and 5 n a with attention in full (Korthikanti et al.
        2022, Eq. 1); heads are of 64 dimensions.
        """
        heads = max(1, self.hidden // 64)
        return tokens * self.layers * (17 * self.hidden + 2.5 * length * heads) * bytes_each
