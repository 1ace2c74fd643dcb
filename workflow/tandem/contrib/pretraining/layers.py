"""Layers that pre-training puts on top of an encoder: BERT's head that predicts tokens, and layers of decoders."""

import math
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from tandem.contrib.pretraining.masking import IGNORED
from tandem.models.hub import from_folder


def initialise(module: nn.Module, config: Any) -> None:
    """Draw linear layers' weights as BERT does: normal with the encoder's own deviation; biases are zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=getattr(config, "initializer_range", 0.02))
            nn.init.zeros_(part.bias)


def make_norm(config: Any, size: int) -> nn.LayerNorm:
    """Return a layer norm with the encoder's epsilon."""
    return nn.LayerNorm(size, eps=getattr(config, "layer_norm_eps", 1e-12))


class LanguageHead(nn.Module):
    """Predict tokens by BERT's head, o = E · LayerNorm(gelu(W h + b)) + c, with E the encoder's own embeddings.

    The embeddings are not a parameter of the head: every call passes them. `encoder` determines the sizes.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        words = encoder.get_input_embeddings()
        self.dense = nn.Linear(encoder.config.hidden_size, words.embedding_dim)
        self.norm = make_norm(encoder.config, words.embedding_dim)
        self.bias = nn.Parameter(torch.zeros(words.num_embeddings))
        initialise(self, encoder.config)

    def forward(self, hidden: Tensor, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Return -log p(token), averaged over each passage's labelled tokens; 0 for a passage without any.

        BERT averages over all labelled tokens of a batch.

        Args:
            hidden: shape (passages, length, dim).
            labels: ids, or `IGNORED`, shape (passages, length).
            embeddings: the encoder's, shape (vocabulary, dim).
        Returns:
            Shape (passages,), in nats, float32.
        """
        is_labelled = labels != IGNORED
        logits = self.compute_logits(hidden[is_labelled], embeddings)
        losses = nn.functional.cross_entropy(logits, labels[is_labelled], reduction="none")
        rows = is_labelled.nonzero()[:, 0]
        shares = losses / is_labelled.sum(1)[rows]
        return losses.new_zeros(len(labels)).index_add(0, rows, shares)

    def find_highest(self, hidden: Tensor, present: Tensor, embeddings: Tensor) -> Tensor:
        """Return max_i o_ij over the tokens i of each passage; 0 for a passage without any.

        Args:
            hidden: shape (passages, length, dim).
            present: the positions of the passage's own tokens, shape (passages, length).
            embeddings: the encoder's, shape (vocabulary, dim).
        Returns:
            Shape (passages, vocabulary), float32 at least.
        """
        states = self._transform(hidden)
        kind = states.device.type
        if torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
            states, embeddings = states.to(dtype), embeddings.to(dtype)
        highest: Tensor = _HighestProducts.apply(states, present, embeddings)  # type: ignore[no-untyped-call]
        # the bias of a term is the same at every token
        biased = highest.to(torch.promote_types(highest.dtype, torch.float32)) + self.bias
        return biased.masked_fill(~present.any(1)[:, None], 0.0)

    def compute_logits(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        """Return o of some states, shape (…, vocabulary), float32 at least."""
        logits = nn.functional.linear(self._transform(hidden), embeddings, self.bias)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def _transform(self, hidden: Tensor) -> Tensor:
        states: Tensor = self.norm(nn.functional.gelu(self.dense(hidden)))
        return states


class _HighestProducts(torch.autograd.Function):
    """Compute max_i e_j · s_i over the tokens i of each passage, for every term j.

    Products are computed for one passage at a time, so that only the logits of one passage are in memory.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, present: Tensor, embeddings: Tensor) -> Tensor:
        """Return the maxima, shape (passages, vocabulary), over the states that are present.

        `states` has the shape (passages, length, dim).
        """
        shape = len(states), len(embeddings)
        highest = states.new_zeros(shape)
        places = torch.zeros(shape, dtype=torch.int64, device=states.device)
        for row in range(len(states)):
            # tokens are the last axis, so that a term's products lie next to each other in memory
            products = embeddings @ states[row].T
            products.masked_fill_(~present[row], -torch.inf)
            torch.max(products, 1, out=(highest[row], places[row]))
        ctx.save_for_backward(states, embeddings, places)
        return highest

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor]:
        """Pass each term's gradient to the token with the largest product, and to the term's embedding."""
        states, embeddings, places = ctx.saved_tensors
        of_states = torch.empty_like(states)
        wide = torch.promote_types(embeddings.dtype, torch.float32)
        of_embeddings = torch.zeros_like(embeddings, dtype=wide)
        for row in range(len(states)):
            shares = gradient.new_zeros(len(embeddings), states.shape[1])
            shares.scatter_(1, places[row, :, None], gradient[row, :, None])
            of_states[row] = shares.T @ embeddings
            of_embeddings += shares @ states[row]
        return of_states, None, of_embeddings.to(embeddings.dtype)


class FamilyHead:
    """The parts of the head of a family's `…ForMaskedLM`, if it is built like `LanguageHead`: BERT and its relatives.

    Attributes:
        dense, norm: as in `LanguageHead`.
        output: the layer whose weights are the encoder's embeddings; its bias is the head's.
    """

    def __init__(self, dense: nn.Linear, norm: nn.LayerNorm, output: Any) -> None:
        self.dense, self.norm, self.output = dense, norm, output

    @classmethod
    def find(cls, whole: Any) -> Self | None:
        """Return the parts of the head of the model `whole`; None if the family has a different head."""
        base, output = whole.base_model_prefix, whole.get_output_embeddings()
        parts = [
            part
            for name, part in whole.named_modules()
            if name.split(".")[0] != base and part is not output
        ]
        dense = [part for part in parts if isinstance(part, nn.Linear)]
        norms = [part for part in parts if isinstance(part, nn.LayerNorm)]
        if len(dense) != 1 or len(norms) != 1 or dense[0].bias is None or output.bias is None:
            return None
        return cls(dense[0], norms[0], output)


def _predicts_by_gelu(config: Any) -> bool:
    """Return whether a family has a head that predicts tokens, with gelu as activation like `LanguageHead`."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

    activation = getattr(config, "hidden_act", getattr(config, "activation", "gelu"))
    return type(config) in MODEL_FOR_MASKED_LM_MAPPING and activation == "gelu"


def start_head(head: LanguageHead, encoder: Any, folder: Path) -> bool:
    """Load a head's weights from an encoder's folder; return whether the folder has weights that fit."""
    from transformers import AutoModelForMaskedLM

    if not _predicts_by_gelu(encoder.config):
        return False
    whole, report = from_folder(AutoModelForMaskedLM, folder)
    found = FamilyHead.find(whole)
    if found is None or report["missing_keys"] or report["mismatched_keys"]:
        return False
    if found.dense.weight.shape != head.dense.weight.shape:
        return False
    head.dense.load_state_dict(found.dense.state_dict())
    head.norm.load_state_dict(found.norm.state_dict())
    head.bias.data.copy_(found.output.bias.data)
    return True


def join_head(encoder: Any, head: LanguageHead) -> Any:
    """Return the encoder with its head as its family's `…ForMaskedLM`; only the encoder if that head is different.

    BERT and its relatives have this head: a dense layer, gelu, a norm, and the embeddings with a bias.
    """
    from transformers import AutoModelForMaskedLM

    if not _predicts_by_gelu(encoder.config):
        return encoder
    whole = AutoModelForMaskedLM.from_config(encoder.config)
    found = FamilyHead.find(whole)
    if found is None:
        return encoder
    setattr(whole, whole.base_model_prefix, encoder)
    whole.tie_weights()
    found.dense.load_state_dict(head.dense.state_dict())
    found.norm.load_state_dict(head.norm.state_dict())
    found.output.bias.data.copy_(head.bias.data)
    return whole


class Block(nn.Module):
    """A transformer layer like BERT's (norm after the residual), whose queries and keys may have different sources.

    softmax(Q Kᵀ / √d + M) V with M = 0 where a key is visible and -∞ elsewhere; then two linear layers with gelu.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        size = config.hidden_size
        wide = getattr(config, "intermediate_size", 4 * size)
        self.heads = config.num_attention_heads
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.joined = nn.Linear(size, size)
        self.inner = nn.Linear(size, wide)
        self.outer = nn.Linear(wide, size)
        self.attended = make_norm(config, size)
        self.transformed = make_norm(config, size)
        self.dropout = nn.Dropout(getattr(config, "hidden_dropout_prob", 0.1))
        initialise(self, config)

    def forward(self, target: Tensor, source: Tensor, visible: Tensor) -> Tensor:
        """Return the layer's output, of the shape of `target`.

        Args:
            target: source of the queries and of the residual, shape (passages, length, dim).
            source: source of keys and values, same shape.
            visible: whether a position (second axis) may attend to another (third), shape (passages, length or 1,
                length). Each must attend to at least one.
        """
        query = self.split_heads(self.query(target))
        key = self.split_heads(self.key(source))
        value = self.split_heads(self.value(source))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        hidden_scores = scores.masked_fill(~visible[:, None], -math.inf)
        weights = self.dropout(hidden_scores.softmax(-1))
        mixed = (weights @ value).transpose(1, 2).flatten(-2)
        attended: Tensor = self.attended(target + self.dropout(self.joined(mixed)))
        changed = self.outer(nn.functional.gelu(self.inner(attended)))
        output: Tensor = self.transformed(attended + self.dropout(changed))
        return output

    def split_heads(self, states: Tensor) -> Tensor:
        """Return states split by head: (passages, length, dim) becomes (passages, heads, length, dim of a head)."""
        by_heads: Tensor = states.unflatten(-1, (self.heads, -1))
        return by_heads.transpose(1, 2)
