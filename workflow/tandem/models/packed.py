"""Packed rows: texts laid end to end in one row of tokens, each attending to itself alone; no padding is computed.

The row goes through any encoder of `FAMILIES` by transformers' attention interface: `attention.attention` is registered
under a name, and where the texts lie reaches it through the encoder's keyword arguments.
"""

from typing import Any

import numpy as np
import torch

from tandem.models.inputs import Inputs
from tandem.models.ragged import ends, spread

# Encoders of transformers that hand keyword arguments down to an attention over whole texts.
# True: positions count from behind the padding id, not from 0.
FAMILIES = {
    "bert": False,
    "camembert": True,
    "distilbert": False,
    "electra": False,
    "ernie": False,
    "roberta": True,
    "xlm-roberta": True,
}
BLOCK = 128  # the longest text of a row is told as a multiple of it, so that few values occur
HALVINGS = 4  # a row is filled up to the budget or to its half, quarter, eighth or sixteenth


def row_length(tokens: int, budget: int) -> int:
    """The length that a row of so many tokens is filled up to, of few values: compiled code then meets few shapes.

    The budget, or its half, quarter, eighth or sixteenth where that is enough; the next multiple of 8 for a text longer
    than the budget.
    """
    steps = [budget >> halvings for halvings in range(HALVINGS + 1)]
    return min((step for step in steps if step >= tokens), default=-(-tokens // 8) * 8)


def pack(inputs: Inputs, budget: int, config: Any) -> dict[str, Any]:
    """Keyword arguments for an encoder: all texts in one row, filled up to `row_length` by texts of padding.

    The filler is cut into texts no longer than the longest one, so that each has positions.

    Args:
        inputs: at least one text.
        budget: tokens of a full row.
        config: the encoder's configuration.
    Returns:
        `input_ids`, `position_ids` and perhaps `token_type_ids`, int64, shape (1, tokens); `cu_seq_lens_q`, where texts
        begin and end, the filler's behind the others', int32, shape (texts + filler + 1,); `max_length_q`.
    """
    longest, tokens = int(inputs.lengths.max()), len(inputs.ids)
    empty = row_length(tokens, budget) - tokens
    filler = np.minimum(longest, empty - np.arange(0, empty, longest))
    lengths = np.concatenate([inputs.lengths, filler])
    first = config.pad_token_id + 1 if FAMILIES[config.model_type] else 0
    rows = {
        "input_ids": np.pad(inputs.ids, (0, empty), constant_values=inputs.pad),
        "position_ids": spread(np.full(len(lengths), first), lengths),
    }
    if inputs.types is not None:
        rows["token_type_ids"] = np.pad(inputs.types, (0, empty))
    made: dict[str, Any] = {name: torch.from_numpy(row)[None] for name, row in rows.items()}
    bounds = torch.from_numpy(ends(lengths).astype(np.int32))
    return made | {"cu_seq_lens_q": bounds, "max_length_q": -(-longest // BLOCK) * BLOCK}
