"""One vector per text from an encoder's token vectors, over padded inputs or packed rows."""

from typing import Any

import torch
from torch import Tensor

from tandem.models.attention import pack
from tandem.models.device import place, precision
from tandem.models.tokens import Inputs


def pooled(encoder: Any, inputs: Inputs, pooling: str, mode: str, packed: int | None, multiple: int) -> Tensor:
    """Run an encoder and pool.

    Args:
        encoder: a transformers encoder.
        inputs: texts in their special tokens.
        pooling: `cls` or `mean`.
        mode: precision, `auto`, `bf16` or `fp32`.
        packed: pack the texts into one row, filled up to this budget; None pads them.
        multiple: of padded inputs, whose length is a multiple of it.
    Returns:
        Shape (texts, dim), float32.
    """
    arguments = inputs.padded(multiple) if packed is None else pack(inputs, packed, encoder.config)
    placed = {name: place(value) if isinstance(value, Tensor) else value for name, value in arguments.items()}
    if packed is not None:
        import torch._dynamo

        # The number of a row's texts stays open: one compiled code serves all.
        torch._dynamo.maybe_mark_dynamic(placed["cu_seq_lens_q"], 0)
    with precision(mode):
        hidden = encoder(**placed).last_hidden_state
    if packed is None:
        return pool(hidden, placed["attention_mask"], pooling)
    return pool_packed(hidden[0], placed["cu_seq_lens_q"][: len(inputs.lengths) + 1], pooling)


def pool(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """One vector per text from its token vectors.

    Args:
        hidden: token vectors, shape (texts, length, dim).
        mask: 1 for tokens and 0 for padding, shape (texts, length).
        pooling: `cls` (the first token's vector) or `mean` (over the tokens).
    Returns:
        Shape (texts, dim), float32.
    """
    hidden = _float32(hidden)
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask[..., None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1)


def pool_packed(hidden: Tensor, bounds: Tensor, pooling: str) -> Tensor:
    """`pool` of texts laid end to end.

    Args:
        hidden: token vectors, shape (tokens, dim).
        bounds: where the texts to pool begin and end, shape (texts + 1,); tokens behind them are left out.
        pooling: `cls` or `mean`.
    """
    hidden = _float32(hidden)
    if pooling == "cls":
        return hidden[bounds[:-1]]
    # unsafe: the bounds need no check, which would wait for the GPU
    return torch.segment_reduce(hidden, "mean", offsets=bounds.long(), unsafe=True)


def _float32(hidden: Tensor) -> Tensor:
    """Token vectors in float32 at least."""
    return hidden.to(torch.promote_types(hidden.dtype, torch.float32))
