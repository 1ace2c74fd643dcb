"""What pre-training hides from an encoder and what it cuts out of passages.

Everything is drawn from (seed, step) for the whole batch at once, or for a passage by its place in it: micro-batches
and processes meet the same draws.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tandem.contrib.pretraining.options import Spans
from tandem.errors import UserError
from tandem.models.ragged import Ids, Ragged, join_ranges, sum_lengths
from tandem.training.forward import Seeds

IGNORED = -100  # the label of a token that is not to be predicted
MASKED, REPLACED = 0.8, 0.1  # of the chosen tokens; the rest stays as it is


def generator(seeds: Seeds, *purpose: int) -> np.random.Generator:
    """Make the generator of a step for one purpose: whatever the process and the micro-batch."""
    return np.random.default_rng([*seeds.entropy[:2], *purpose])


@dataclass(frozen=True)
class Vocabulary:
    """Hold the ids of a tokenizer that masking distinguishes."""

    mask: int
    special: Ids  # ids that are never hidden, never a replacement and never predicted
    ordinary: Ids

    @classmethod
    def of(cls, tokenizer: Any, name: str) -> "Vocabulary":
        """Read it off a tokenizer; a `UserError` that names the encoder if it has no mask token."""
        if tokenizer.mask_token_id is None:
            raise UserError(
                f"encoder {name}: its tokenizer has no mask token; pre-train it with objective crop"
            )
        special = np.unique(np.array(tokenizer.all_special_ids, np.int64))
        return cls(
            tokenizer.mask_token_id, special, np.setdiff1d(np.arange(len(tokenizer)), special)
        )

    def hide(self, texts: Ragged, share: float, draw: np.random.Generator) -> tuple[Ragged, Ragged]:
        """BERT's masking (Devlin et al. 2019 §3.1): of the chosen tokens 80 % are masked, 10 % replaced.

        Args:
            share: how many tokens of each text are chosen, rounded, at least one; single tokens, not whole words.
        Returns:
            The ids the encoder sees, and the labels: the ids that were chosen, `IGNORED` elsewhere; both like `texts`.
        """
        lengths, ids = np.diff(texts.offsets), texts.ids.astype(np.int64)
        row, special = np.repeat(np.arange(len(texts)), lengths), np.isin(ids, self.special)
        # among the ordinary tokens of its text, in random order
        rank = np.empty(len(ids), np.int64)
        rank[np.lexsort((draw.random(len(ids)), special, row))] = join_ranges(
            np.zeros_like(lengths), lengths
        )
        ordinary = np.bincount(row[~special], minlength=len(texts))
        chosen = ~special & (rank < np.maximum(1, np.rint(share * ordinary))[row])
        how, other = draw.random(len(ids)), draw.choice(self.ordinary, len(ids))
        seen = np.where(how < MASKED, self.mask, np.where(how < MASKED + REPLACED, other, ids))
        labels = np.where(chosen, ids, IGNORED)
        return Ragged(np.where(chosen, seen, ids), texts.offsets), Ragged(labels, texts.offsets)


def crop(texts: Ragged, spans: Spans, draw: np.random.Generator) -> Ragged:
    """Cut a random span out of each text; its share of the text and its place are uniform.

    The independent cropping of Contriever (Izacard et al. 2022). A span has at least one token where its text has any.
    """
    starts, sizes = draw_spans(texts, spans, draw)
    return Ragged(texts.ids[join_ranges(starts, sizes)], sum_lengths(sizes))


def draw_spans(texts: Ragged, spans: Spans, draw: np.random.Generator) -> tuple[Ids, Ids]:
    """Return where the span of each text begins among all tokens, and its number of tokens, both of shape (texts,)."""
    lengths = np.diff(texts.offsets)
    shares = draw.uniform(spans.crop_shortest, spans.crop_longest, len(texts))
    places = draw.random(len(texts))
    sizes = np.minimum(lengths, np.maximum(1, np.rint(shares * lengths).astype(np.int64)))
    starts = texts.offsets[:-1] + np.floor(places * (lengths - sizes + 1)).astype(np.int64)
    return starts, sizes


def select_tokens(texts: Ragged, kept: NDArray[np.bool_]) -> Ragged:
    """Return texts with some of their tokens; `kept` has a value for each token of all texts."""
    rows = np.repeat(np.arange(len(texts)), np.diff(texts.offsets))
    return Ragged(texts.ids[kept], sum_lengths(np.bincount(rows[kept], minlength=len(texts))))


def delete_tokens(texts: Ragged, share: float, draw: np.random.Generator) -> Ragged:
    """Return texts without a share of their tokens on average; each keeps one at least, if it has any."""
    values = draw.random(len(texts.ids))
    kept = values >= share
    for row in range(len(texts)):
        start, stop = texts.offsets[row], texts.offsets[row + 1]
        if start < stop and not kept[start:stop].any():
            kept[start + int(values[start:stop].argmax())] = True
    return select_tokens(texts, kept)


def aligned(labels: Ragged, before: int, width: int) -> Ids:
    """Labels where padded inputs have their tokens, shape (texts, width); `IGNORED` at special tokens and padding."""
    at = np.arange(width) - before
    result = np.full((len(labels), width), IGNORED, np.int64)
    result[(at >= 0) & (at < np.diff(labels.offsets)[:, None])] = labels.ids
    return result


def initialise(module: nn.Module, config: Any) -> None:
    """BERT's initial weights: normal with the encoder's own deviation; biases are zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=getattr(config, "initializer_range", 0.02))
            nn.init.zeros_(part.bias)


def norm(config: Any, size: int) -> nn.LayerNorm:
    """Make a layer norm as the encoder has them."""
    return nn.LayerNorm(size, eps=getattr(config, "layer_norm_eps", 1e-12))


class LanguageHead(nn.Module):
    """BERT's head that predicts tokens: o = E · LayerNorm(gelu(W h + b)) + c, with E the encoder's own embeddings.

    These are not a parameter of the head and come with every call; `encoder` gives the sizes.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        words = encoder.get_input_embeddings()
        self.dense = nn.Linear(encoder.config.hidden_size, words.embedding_dim)
        self.norm = norm(encoder.config, words.embedding_dim)
        self.bias = nn.Parameter(torch.zeros(words.num_embeddings))
        initialise(self, encoder.config)

    def forward(self, hidden: Tensor, labels: Tensor, embeddings: Tensor) -> Tensor:
        """-log p(token) averaged over each passage's labelled tokens (BERT: the batch's); 0 for a passage without any.

        Args:
            hidden: shape (passages, length, dim).
            labels: ids, or `IGNORED`, shape (passages, length).
            embeddings: the encoder's, shape (vocabulary, dim).
        Returns:
            Shape (passages,), in nats, float32.
        """
        at = labels != IGNORED
        logits = self.logits(hidden[at], embeddings)
        losses = nn.functional.cross_entropy(logits, labels[at], reduction="none")
        rows = at.nonzero()[:, 0]
        return losses.new_zeros(len(labels)).index_add(0, rows, losses / at.sum(1)[rows])

    def logits(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        """o of some states, shape (…, vocabulary), float32 at least."""
        states = self.norm(nn.functional.gelu(self.dense(hidden)))
        logits = nn.functional.linear(states, embeddings, self.bias)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def masked_lm(encoder: Any, head: LanguageHead) -> Any:
    """Load the encoder with its head as its family's `…ForMaskedLM`; alone where the family's is another one.

    BERT's relatives have this head: a dense layer, gelu, a norm, and the embeddings with a bias.
    """
    from transformers import AutoModelForMaskedLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

    config = encoder.config
    activation = getattr(config, "hidden_act", getattr(config, "activation", "gelu"))
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or activation != "gelu":
        return encoder
    whole = AutoModelForMaskedLM.from_config(config)
    base, output = whole.base_model_prefix, whole.get_output_embeddings()
    parts = [
        part
        for name, part in whole.named_modules()
        if name.split(".")[0] != base and part is not output
    ]
    dense, norms = (
        [part for part in parts if isinstance(part, kind)] for kind in (nn.Linear, nn.LayerNorm)
    )
    if len(dense) != 1 or len(norms) != 1 or dense[0].bias is None or output.bias is None:
        return encoder
    setattr(whole, base, encoder)
    whole.tie_weights()
    dense[0].load_state_dict(head.dense.state_dict())
    norms[0].load_state_dict(head.norm.state_dict())
    output.bias.data.copy_(head.bias.data)
    return whole


class Block(nn.Module):
    """Compute a transformer layer as BERT's (norm after the residual), whose queries and keys may differ in origin.

    softmax(Q Kᵀ / √d + M) V with M = 0 where a key is visible and -∞ elsewhere; then two linear layers with gelu.
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

    def forward(self, target: Tensor, source: Tensor, visible: Tensor) -> Tensor:
        """Return the layer's output, of the shape of `target`.

        Args:
            target: gives the queries, and the residual, shape (passages, length, dim).
            source: gives keys and values, same shape.
            visible: whether a position (second axis) may look at another (third), each at one at least, shape
                (passages, length or 1, length).
        """
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, x in ((self.query, target), (self.key, source), (self.value, source))
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        weights = self.dropout(scores.masked_fill(~visible[:, None], -math.inf).softmax(-1))
        mixed = (weights @ value).transpose(1, 2).flatten(-2)
        hidden: Tensor = self.attended(target + self.dropout(self.joined(mixed)))
        output: Tensor = self.transformed(
            hidden + self.dropout(self.outer(nn.functional.gelu(self.inner(hidden))))
        )
        return output
