"""What stands on an encoder while it is pre-trained and is dropped afterwards."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from tandem.training.masking import IGNORED


def initialise(module: nn.Module, config: Any) -> None:
    """BERT's initial weights: normal with the encoder's own deviation; biases are zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=getattr(config, "initializer_range", 0.02))
            nn.init.zeros_(part.bias)


def norm(config: Any, size: int) -> nn.LayerNorm:
    """A layer norm as the encoder has them."""
    return nn.LayerNorm(size, eps=getattr(config, "layer_norm_eps", 1e-12))


class LanguageHead(nn.Module):
    """BERT's head that predicts tokens: o = E · LayerNorm(gelu(W h + b)) + c, with E the encoder's own embeddings.

    Args:
        encoder: gives the sizes; its embeddings are no parameter of the head and come with every call.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        words = encoder.get_input_embeddings()
        self.dense = nn.Linear(encoder.config.hidden_size, words.embedding_dim)
        self.norm = norm(encoder.config, words.embedding_dim)
        self.bias = nn.Parameter(torch.zeros(words.num_embeddings))
        initialise(self, encoder.config)

    def forward(self, hidden: Tensor, labels: Tensor, embeddings: Tensor) -> Tensor:
        """-log p(token) averaged over each passage's labelled tokens; 0 for a passage without any.

        BERT averages over all labelled tokens of the batch; this way the loss falls apart per passage.

        Args:
            hidden: shape (passages, length, dim).
            labels: ids, or `IGNORED`, shape (passages, length).
            embeddings: the encoder's, shape (vocabulary, dim).
        Returns:
            Shape (passages,), in nats, float32.
        """
        at = labels != IGNORED
        made = self.norm(nn.functional.gelu(self.dense(hidden[at])))
        logits = nn.functional.linear(made, embeddings, self.bias)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses = nn.functional.cross_entropy(logits, labels[at], reduction="none")
        rows = at.nonzero()[:, 0]
        return losses.new_zeros(len(labels)).index_add(0, rows, losses / at.sum(1)[rows])


class Block(nn.Module):
    """One transformer layer as BERT's (norm after the residual), whose queries and keys may come from different places.

    softmax(Q Kᵀ / √d + M) V with M = 0 where a key is visible and -∞ elsewhere; then two linear layers with gelu.

    Args:
        config: the encoder's, for sizes and dropout.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        size, self.heads = config.hidden_size, config.num_attention_heads
        self.query, self.key, self.value, self.joined = (nn.Linear(size, size) for _ in range(4))
        wide = getattr(config, "intermediate_size", 4 * size)
        self.inner, self.outer = nn.Linear(size, wide), nn.Linear(wide, size)
        self.attended, self.transformed = norm(config, size), norm(config, size)
        self.dropout = nn.Dropout(getattr(config, "hidden_dropout_prob", 0.1))
        initialise(self, config)

    def forward(self, asking: Tensor, asked: Tensor, visible: Tensor) -> Tensor:
        """The layer's output, of the shape of `asking`.

        Args:
            asking: what queries are made of, and the residual, shape (passages, length, dim).
            asked: what keys and values are made of, same shape.
            visible: whether a position (second axis) may look at another (third), each at one at least, shape
                (passages, length or 1, length).
        """
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, x in ((self.query, asking), (self.key, asked), (self.value, asked))
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        weights = self.dropout(scores.masked_fill(~visible[:, None], -math.inf).softmax(-1))
        mixed = (weights @ value).transpose(1, 2).flatten(-2)
        hidden: Tensor = self.attended(asking + self.dropout(self.joined(mixed)))
        made: Tensor = self.transformed(hidden + self.dropout(self.outer(nn.functional.gelu(self.inner(hidden)))))
        return made
