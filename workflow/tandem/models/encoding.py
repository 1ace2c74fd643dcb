"""Run an encoder over texts: padded or packed into one row without padding, and pooled to one vector each.

Encoders of `PACKED_FAMILIES` take packed rows, float32 attention and a mask of every batch through transformers'
attention interface: `set_attn_implementation(PACKED_ATTENTION)`, `(FLOAT32)` or `(MASKED)` after `register`. Where the
texts of a packed row lie reaches the attention through keyword arguments.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from tandem.errors import UserError
from tandem.models.device import device, move_to_device, place_array, precision
from tandem.models.folders import BEHIND_PADDING
from tandem.models.ragged import Ids, join_ranges, sum_lengths
from tandem.models.tokens import Inputs

PACKED_ATTENTION = "tandem_packed"
FLOAT32 = "tandem_float32"
MASKED = "tandem_masked"
# Encoders of transformers that hand keyword arguments down to an attention over whole texts.
PACKED_FAMILIES = ("bert", "camembert", "distilbert", "electra", "ernie", "roberta", "xlm-roberta")
# the length of a row's longest text is rounded up to a multiple of it, so that few values occur
LENGTH_MULTIPLE = 128
# Batches of `make_equal_batches` have a multiple of so many rows: in odd shapes matrix products differ at the edges.
_LEAST_ROWS = 8
# of such a batch on a CPU, at most: it gains nothing from more, and a last batch has less to fill
_CPU_TOKENS = 1024


def fill_length(tokens: int, budget: int) -> int:
    """Return the length that a row of so many tokens is filled up to.

    It has few values, so that compiled code meets few shapes.

    The budget, or its half, quarter, eighth or sixteenth where that is enough; a longer text's next multiple of 8.
    """
    steps = [budget >> halvings for halvings in range(5)]
    next_multiple = -(-tokens // 8) * 8  # rounded up
    return min([step for step in steps if step >= tokens], default=next_multiple)


def pack_texts(inputs: Inputs, budget: int, config: Any) -> dict[str, Any]:
    """Return keyword arguments for an encoder: all texts in one row, filled up to `fill_length` by texts of padding.

    The filler is cut into texts no longer than the longest one, so that each has positions.

    Args:
        inputs: at least one text.
    Returns:
        `input_ids`, `position_ids` and perhaps `token_type_ids`, int64, shape (1, tokens); `cu_seq_lens_q`, where texts
        begin and end, the filler's behind the others', int32, shape (texts + filler + 1,); `max_length_q`.
    """
    longest = int(inputs.lengths.max())
    tokens = len(inputs.ids)
    empty = fill_length(tokens, budget) - tokens
    filler = np.minimum(longest, empty - np.arange(0, empty, longest))
    lengths = np.concatenate([inputs.lengths, filler])
    first = config.pad_token_id + 1 if config.model_type in BEHIND_PADDING else 0
    rows = {
        "input_ids": np.pad(inputs.ids, (0, empty), constant_values=inputs.pad),
        "position_ids": join_ranges(np.full(len(lengths), first), lengths),
    }
    if inputs.types is not None:
        rows["token_type_ids"] = np.pad(inputs.types, (0, empty))
    tensors: dict[str, Any] = {name: torch.from_numpy(row)[None] for name, row in rows.items()}
    bounds = torch.from_numpy(sum_lengths(lengths).astype(np.int32))
    return tensors | {
        "cu_seq_lens_q": bounds,
        "max_length_q": -(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE,
    }


def register() -> None:
    """Make these attentions known to transformers."""
    functions = {
        PACKED_ATTENTION: compute_packed_attention,
        FLOAT32: compute_attention_in_float32,
        MASKED: sdpa_attention_forward,
    }
    for name, function in functions.items():
        AttentionInterface.register(name, function)
        AttentionMaskInterface.register(name, mask_always if name == MASKED else sdpa_mask)


def mask_always(*arguments: Any, **options: Any) -> Tensor | None:
    """Make transformers' mask, also of a batch without padding, for which CUDA would take another kernel without one.

    A text's last bits would depend on the others; and looking for padding waits for the GPU.
    """
    mask: Tensor | None = sdpa_mask(*arguments, **options | {"allow_is_bidirectional_skip": False})
    return mask


def compute_packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int = 0,
    **options: Any,
) -> tuple[Tensor, None]:
    """softmax(q kᵀ · scaling) v within each text, as transformers calls it; padded inputs go to PyTorch's usual kernel.

    Args:
        query, key, value: shape (1, heads, tokens, dim); for padded inputs (texts, heads, length, dim).
        scaling: factor on the scores.
        cu_seq_lens_q: where packed texts begin and end, int32, shape (texts + 1,); None for padded inputs.
        max_length_q: no text is longer.
    Returns:
        Shape (1, tokens, heads, dim), and no weights.
    """
    if cu_seq_lens_q is None:
        mixed, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **options
        )
        return mixed, None
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    half = q.dtype in (torch.bfloat16, torch.float16)
    # of PyTorch, of variable length
    has_kernel = q.is_cuda and half and q.shape[-1] % 8 == 0 and q.shape[-1] <= 256
    compute = compute_by_kernel if has_kernel else compute_by_padding
    return compute(q, k, v, cu_seq_lens_q, max_length_q, scaling, dropout)[None], None


def compute_attention_in_float32(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Run PyTorch's usual kernel in float32, whatever comes in: on a CPU it is faster than in bf16, casts included.

    Args and returns: as `compute_packed_attention` for padded inputs; shape (texts, length, heads, dim), float32.
    """
    with torch.autocast(query.device.type, enabled=False):
        parts = (part.float() for part in (query, key, value))
        mixed, _ = sdpa_attention_forward(module, *parts, attention_mask, **options)
    return mixed, None


def compute_by_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    longest: int,
    scaling: float,
    dropout: float,
) -> Tensor:
    """Compute what `compute_by_padding` does, by the kernel.

    It is the operation within `torch.nn.attention.varlen.varlen_attn`, which drops no weights and is entered through
    Python: that took a third of a training step's time on the processor, which a GPU then waits for.
    """
    arguments = (query, key, value, bounds, bounds, longest, longest)
    mixed: Tensor
    mixed, *_ = torch.ops.aten._flash_attention_forward(
        *arguments, dropout, False, False, scale=scaling
    )
    return mixed


def compute_by_padding(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    longest: int,
    scaling: float,
    dropout: float,
) -> Tensor:
    """Compute the attention of each text to itself on padded copies: for any device and precision.

    Args:
        query, key, value: shape (tokens, heads, dim).
        bounds: where texts begin and end, from 0 to `tokens`, shape (texts + 1,).
        longest: no text is longer; shapes depend on it, values do not.
        scaling: factor on the scores.
    Returns:
        Shape (tokens, heads, dim).
    """
    tokens = torch.arange(len(query), device=query.device, dtype=bounds.dtype)
    # Not in `bounds[1:]`: compiled for CUDA, PyTorch 2.11 searches the whole tensor, and the last text is one too far.
    text = torch.searchsorted(bounds, tokens, right=True) - 1
    positions = bounds[:-1, None] + torch.arange(longest, device=query.device)
    stands = positions < bounds[1:, None]
    positions = positions.clamp(max=len(query) - 1)
    q, k, v = (part[positions].transpose(1, 2) for part in (query, key, value))
    scores = q @ k.transpose(2, 3) * scaling
    scores = scores.masked_fill(~stands[:, None, None], torch.finfo(query.dtype).min)
    weights = nn.functional.dropout(scores.softmax(-1), dropout)
    mixed: Tensor = (weights @ v).transpose(1, 2)[text, tokens - bounds[text]]
    return mixed


def make_equal_batches(padded: Ids, budget: int) -> Iterator[tuple[Ids, int]]:
    """Yield batches of rows of one length, as many in each: filled up, a row meets the same shape in any company.

    Args:
        padded: a row's length with padding, shape (rows,).
        budget: tokens of a batch, `_CPU_TOKENS` at most on a CPU; there are `_LEAST_ROWS` rows at least.
    Yields:
        The rows of a batch, and how many it is to be filled up to.
    """
    if device().type == "cpu":
        budget = min(budget, _CPU_TOKENS)
    for length in np.unique(padded):
        members = np.flatnonzero(padded == length)
        fit = budget // max(1, int(length))
        rows = max(1, fit // _LEAST_ROWS) * _LEAST_ROWS
        for start in range(0, len(members), rows):
            yield members[start : start + rows], rows


def encode_and_pool(
    encoder: Any, inputs: Inputs, pooling: str, mode: str, packed: int | None, multiple: int
) -> Tensor:
    """Run an encoder and pool.

    Args:
        packed: pack the texts into one row, filled up to this budget; None pads them.
        multiple: of padded inputs, whose length is a multiple of it.
        pooling: as of `pool_states`; or `segments`, of pairs: the means over each text's tokens.
    Returns:
        Shape (texts, dim), of segments (texts, 2, dim), float32.
    """
    arguments = (
        inputs.padded(multiple) if packed is None else pack_texts(inputs, packed, encoder.config)
    )
    placed: dict[str, Any] = {}
    for name, value in arguments.items():
        placed[name] = move_to_device(value) if isinstance(value, Tensor) else value
    if packed is not None:
        from torch import _dynamo

        # The number of a row's texts stays open: one compiled code serves all.
        _dynamo.maybe_mark_dynamic(placed["cu_seq_lens_q"], 0)
    with precision(mode, encoder):
        hidden = encoder(**placed).last_hidden_state
    first = (
        place_array(inputs.first) if pooling == "segments" and inputs.first is not None else None
    )
    if packed is None:
        mask = placed["attention_mask"]
        if first is None:
            return pool_states(hidden, mask, pooling)
        is_first = torch.arange(mask.shape[1], device=mask.device) < first[:, None]
        means = [pool_states(hidden, mask * part, "mean") for part in (is_first, ~is_first)]
        return torch.stack(means, 1)

    bounds = placed["cu_seq_lens_q"][: len(inputs.lengths) + 1]  # without the filler's
    if first is None:
        return pool_packed(hidden[0], bounds, pooling)
    # Each pair is pooled as two texts, of which the second begins where the first ends.
    starts = torch.stack([bounds[:-1], bounds[:-1] + first], 1).flatten()
    pooled = pool_packed(hidden[0], torch.cat([starts, bounds[-1:]]), "mean")
    return pooled.view(len(first), 2, -1)


def pool_states(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Return one vector per text from its token vectors.

    Args:
        hidden: token vectors, shape (texts, length, dim).
        mask: 1 for tokens and 0 for padding, shape (texts, length).
        pooling: `cls` and `lasttoken` (the first, the last token's vector), `mean`, `max` (of each number over the
            tokens) or `weightedmean` (the n-th token counts n times; Muennighoff 2022, SGPT).
    Returns:
        Shape (texts, dim), float32; zeros of a text without tokens. Padding may stand on either side.
    """
    hidden = _to_float32(hidden)
    if pooling in ("mean", "weightedmean"):
        counts = mask * mask.cumsum(1) if pooling == "weightedmean" else mask
        weights = counts[..., None].to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
    texts = torch.arange(len(hidden), device=hidden.device)
    if pooling == "max":
        vectors = hidden.masked_fill(mask[..., None] == 0, -torch.inf).amax(1)
    elif pooling == "cls":
        vectors = hidden[texts, mask.argmax(1)]
    else:  # the last token is the first one from the end
        vectors = hidden[texts, mask.shape[1] - 1 - mask.flip(1).argmax(1)]
    return vectors.masked_fill(~mask.any(1)[:, None], 0.0)


def pool_packed(hidden: Tensor, bounds: Tensor, pooling: str) -> Tensor:
    """Return one vector per text, as `pool_states`, of texts laid end to end.

    Args:
        hidden: token vectors, shape (tokens, dim).
        bounds: where the texts to pool begin and end, shape (texts + 1,); tokens behind them are left out.
    """
    hidden = _to_float32(hidden)
    offsets = bounds.long()
    if pooling == "cls":
        return hidden[offsets[:-1]]
    if pooling == "lasttoken":
        return hidden[offsets[1:] - 1]
    if pooling == "weightedmean":
        places = torch.arange(len(hidden), device=hidden.device)
        text = torch.searchsorted(offsets[1:], places, right=True).clamp(max=len(bounds) - 2)
        weights = (places - offsets[text] + 1).to(hidden.dtype)[:, None]
        sums = _reduce_texts(hidden * weights, "sum", offsets)
        return sums / _reduce_texts(weights, "sum", offsets)
    return _reduce_texts(hidden, pooling, offsets)


def _reduce_texts(rows: Tensor, how: str, offsets: Tensor) -> Tensor:
    # unsafe: the bounds need no check, which would wait for the GPU
    return torch.segment_reduce(rows, how, offsets=offsets, unsafe=True)


def _to_float32(hidden: Tensor) -> Tensor:
    return hidden.to(torch.promote_types(hidden.dtype, torch.float32))


def check_range(largest: float, dtype: torch.dtype, where: str, hint: str) -> None:
    """Refuse vectors of which the largest number is NaN, or more than `dtype` holds; `where` is their model's folder.

    `hint` says what to do about numbers that are too large.
    """
    limit = torch.finfo(dtype).max
    if math.isnan(largest):
        raise UserError(
            f"{where}: a vector holds nan; look for NaN in its weights, or for a training that diverged"
        )
    if largest > limit:
        raise UserError(
            f"{where}: a vector holds {largest:g}, {str(dtype)[6:]} ends at {limit:g}; {hint}"
        )
