"""Run an encoder over texts, which are padded or packed into one row without padding, and pool each to one vector.

After `register`, encoders of `PACKED_FAMILIES` can use three attentions through transformers' attention interface:
`set_attn_implementation(PACKED_ATTENTION)` for packed rows, `(ON_CPU)` for what is fastest on a CPU, `(MASKED)` to have
a mask for every batch. Keyword arguments tell the attention where the texts of a packed row begin and end.
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
from tandem.models.device import device, has_amx, move_to_device, place_array, precision
from tandem.models.folders import BEHIND_PADDING
from tandem.models.ragged import Ids, join_ranges, round_up, sum_lengths
from tandem.models.tokens import Inputs

PACKED_ATTENTION = "tandem_packed"
ON_CPU = "tandem_cpu"
MASKED = "tandem_masked"
# Encoders of transformers that hand keyword arguments down to an attention over whole texts.
PACKED_FAMILIES = ("bert", "camembert", "distilbert", "electra", "ernie", "roberta", "xlm-roberta")
# Numbers of float32 that PyTorch's kernels compute at once, by the instructions they use.
_AT_ONCE = {"AVX2": 8, "AVX512": 16}
# The length of a row's longest text is rounded up to a multiple of this, so that few values occur.
LENGTH_MULTIPLE = 128
# Lengths of longer texts are rounded up to powers of two: multiples would give too many values.
_SHORT_TOKENS = 512
SIDE_BY_SIDE = "extras.side_by_side:map_side_by_side"
# Batches of `make_equal_batches` have a multiple of this number of rows: in odd shapes matrix products differ at the
# edges.
_LEAST_ROWS = 8
# Maximum tokens of such a batch on a CPU: a larger one is no faster, and the last batch would need more filling.
_CPU_TOKENS = 1024


def fill_length(tokens: int, budget: int) -> int:
    """Return the length to which a row of so many tokens is filled up.

    It is the smallest of the budget, its half, quarter, eighth and sixteenth that suffices; for more tokens than the
    budget it is the next power of two. So few lengths occur, and code is compiled for few shapes.
    """
    steps = [budget >> halvings for halvings in range(5)]
    return min([step for step in steps if step >= tokens], default=_find_power(tokens))


def _round_longest(tokens: int) -> int:
    """Return the rounded length of a row's longest text for the attention; compiled code depends on it, too."""
    if tokens > _SHORT_TOKENS:
        return _find_power(tokens)
    return round_up(tokens, LENGTH_MULTIPLE)


def _find_power(tokens: int) -> int:
    """Return the smallest power of two that is at least `tokens`."""
    return 1 << (tokens - 1).bit_length()


def pack_texts(inputs: Inputs, budget: int, config: Any) -> dict[str, Any]:
    """Pack all texts into one row, filled up to `fill_length` with padding, and return an encoder's keyword arguments.

    The padding is cut into texts no longer than the longest real one, so that the encoder has positions for each.

    Args:
        inputs: at least one text.
    Returns:
        `input_ids`, `position_ids` and perhaps `token_type_ids`, int64, shape (1, tokens); `cu_seq_lens_q`: where texts
        begin and end, those of padding last, int32, shape (all texts + 1,); `max_length_q`.
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
    return tensors | {"cu_seq_lens_q": bounds, "max_length_q": _round_longest(longest)}


def register() -> None:
    """Register the attentions of this module with transformers."""
    functions = {
        PACKED_ATTENTION: compute_packed_attention,
        ON_CPU: compute_attention_on_cpu,
        MASKED: sdpa_attention_forward,
    }
    masks = {PACKED_ATTENTION: sdpa_mask, ON_CPU: mask_filled, MASKED: mask_always}
    for name, function in functions.items():
        AttentionInterface.register(name, function)
        AttentionMaskInterface.register(name, masks[name])


def mask_always(*arguments: Any, **options: Any) -> Tensor | None:
    """Return transformers' mask, even for a batch without padding, for which transformers makes none.

    Without a mask CUDA takes another kernel, so that a text's last bits would depend on the others. Besides, looking
    for padding would wait for the GPU.
    """
    skips = {"allow_is_bidirectional_skip": False, "allow_is_causal_skip": False}
    mask: Tensor | None = sdpa_mask(*arguments, **options | skips)
    return mask


def mask_filled(*arguments: Any, **options: Any) -> Tensor | None:
    """Return transformers' mask of every batch, with keys added that no text reads, up to a multiple of `_AT_ONCE`.

    PyTorch's kernel computes the exponentials of left-over keys one by one; each takes as long as sixteen at once.
    """
    mask = mask_always(*arguments, **options)
    if mask is None:
        return None
    step = _AT_ONCE.get(torch.backends.cpu.get_cpu_capability(), 1)
    return nn.functional.pad(mask, (0, -mask.shape[-1] % step))


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
    """Compute softmax(q kᵀ · scaling) v within each packed text; padded inputs go to PyTorch's usual kernel.

    Args:
        query, key, value: shape (1, heads, tokens, dim); for padded inputs (texts, heads, length, dim).
        scaling: factor on the scores.
        cu_seq_lens_q: where packed texts begin and end, int32, shape (texts + 1,); None for padded inputs.
        max_length_q: no text is longer.
    Returns:
        Shape (1, tokens, heads, dim), and None for the weights, as transformers expects.
    """
    if cu_seq_lens_q is None:
        mixed, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **options
        )
        return mixed, None
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    half = q.dtype in (torch.bfloat16, torch.float16)
    # what PyTorch's kernel for texts of different lengths supports
    has_kernel = q.is_cuda and half and q.shape[-1] % 8 == 0 and q.shape[-1] <= 256
    compute = compute_by_kernel if has_kernel else compute_by_padding
    return compute(q, k, v, cu_seq_lens_q, max_length_q, scaling, dropout)[None], None


def compute_attention_on_cpu(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Run PyTorch's usual kernel as it is fastest on a CPU: in bf16 where AMX multiplies it, else in float32.

    Takes what `compute_packed_attention` takes for padded inputs, and a mask with as many keys or more
    (`mask_filled`); returns shape (texts, length, heads, dim), of the type that it computed in.
    """
    dtype = torch.bfloat16 if query.dtype == torch.bfloat16 and has_amx() else torch.float32
    length = key.shape[2]
    added = attention_mask.shape[-1] - length if attention_mask is not None else 0

    def fill(states: Tensor) -> Tensor:
        """Return keys or values in `dtype`, with zeros for the keys that the mask adds."""
        if not added:
            return states.to(dtype)
        texts, heads, _, dim = states.shape
        filled = states.new_zeros((texts, length + added, heads, dim), dtype=dtype).transpose(1, 2)
        filled[:, :, :length] = states
        return filled

    with torch.autocast(query.device.type, enabled=False):
        parts = (query.to(dtype), fill(key), fill(value))
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
    """Compute the same as `compute_by_padding`, by a kernel of PyTorch.

    The operation is called directly, not through `torch.nn.attention.varlen.varlen_attn`, which has no dropout. Its
    Python code also took a third of the time that a training step needs on the processor while the GPU waits.
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
    """Compute the attention of each text to itself on padded copies, on any device and in any precision.

    Args:
        query, key, value: shape (tokens, heads, dim).
        bounds: where texts begin and end, from 0 to `tokens`, shape (texts + 1,).
        longest: no text is longer; shapes depend on it, values do not.
        scaling: factor on the scores.
    Returns:
        Shape (tokens, heads, dim).
    """
    tokens = torch.arange(len(query), device=query.device, dtype=bounds.dtype)
    # Not searched in `bounds[1:]`: PyTorch 2.11, compiled for CUDA, searches the whole tensor, which is one text off.
    text = torch.searchsorted(bounds, tokens, right=True) - 1
    positions = bounds[:-1, None] + torch.arange(longest, device=query.device)
    is_token = positions < bounds[1:, None]
    positions = positions.clamp(max=len(query) - 1)
    q, k, v = (part[positions].transpose(1, 2) for part in (query, key, value))
    scores = q @ k.transpose(2, 3) * scaling
    scores = scores.masked_fill(~is_token[:, None, None], torch.finfo(query.dtype).min)
    weights = nn.functional.dropout(scores.softmax(-1), dropout)
    mixed: Tensor = (weights @ v).transpose(1, 2)[text, tokens - bounds[text]]
    return mixed


def make_equal_batches(padded: Ids, budget: int) -> Iterator[tuple[Ids, int]]:
    """Yield batches of rows of one padded length, with a fixed number of rows for each length.

    If the caller fills up the last batch of a length, a row is always computed in the same tensor shape.

    Args:
        padded: length of each row with padding, shape (rows,).
        budget: tokens of a batch, on a CPU at most `_CPU_TOKENS`; a batch has at least `_LEAST_ROWS` rows.
    Yields:
        The rows of a batch, and the number of rows to fill it up to.
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
    """Run an encoder, and pool the states of each text.

    Args:
        pooling: one of `pool_states`; or `segments`, for pairs: the means over the tokens of each of the two texts.
        packed: pack the texts into one row, filled up to this budget; None pads them.
        multiple: the length of padded inputs is a multiple of this.
    Returns:
        Shape (texts, dim), with `segments` (pairs, 2, dim), float32.
    """
    arguments = (
        inputs.to_tensors(multiple)
        if packed is None
        else pack_texts(inputs, packed, encoder.config)
    )
    placed: dict[str, Any] = {}
    for name, value in arguments.items():
        placed[name] = move_to_device(value) if isinstance(value, Tensor) else value
    if packed is not None:
        from torch import _dynamo

        # The number of texts in a row stays dynamic, so that code is compiled once for all numbers.
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
    # A pair is pooled as two texts: the second begins where the first ends.
    starts = torch.stack([bounds[:-1], bounds[:-1] + first], 1).flatten()
    pooled = pool_packed(hidden[0], torch.cat([starts, bounds[-1:]]), "mean")
    return pooled.view(len(first), 2, -1)


def pool_states(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Return one vector per text from its token vectors; padding may be on either side.

    Args:
        hidden: token vectors, shape (texts, length, dim).
        mask: 1 for tokens and 0 for padding, shape (texts, length).
        pooling: `cls` (the first token's vector), `lasttoken`, `mean`, `max` (of each number over the tokens) or
            `weightedmean` (the n-th token counts n times; Muennighoff 2022, SGPT).
    Returns:
        Shape (texts, dim), float32; zeros for a text without tokens.
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
    else:  # the last token is the first 1 of the reversed mask
        vectors = hidden[texts, mask.shape[1] - 1 - mask.flip(1).argmax(1)]
    return vectors.masked_fill(~mask.any(1)[:, None], 0.0)


def pool_packed(hidden: Tensor, bounds: Tensor, pooling: str) -> Tensor:
    """Return one vector per text, as `pool_states` does, from texts that follow each other in one row.

    Args:
        hidden: token vectors, shape (tokens, dim).
        bounds: where texts begin and end, shape (texts + 1,); tokens behind the last one are left out.
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
    # `unsafe` skips a check of the offsets, which would wait for the GPU
    return torch.segment_reduce(rows, how, offsets=offsets, unsafe=True)


def _to_float32(hidden: Tensor) -> Tensor:
    return hidden.to(torch.promote_types(hidden.dtype, torch.float32))


def check_range(largest: float, dtype: torch.dtype, where: str, hint: str) -> None:
    """Refuse vectors whose largest number is NaN, or more than `dtype` can hold.

    Args:
        largest: the largest absolute value of a number.
        where: folder of their model, for the message.
        hint: what to do about numbers that are too large.
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
