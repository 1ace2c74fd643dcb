"""Micro-batches by token budget: rows of similar length together, so that little is computed for padding."""

from typing import Any

import numpy as np

from tandem.models.template import Ids


def token_batches(lengths: Ids, budget: int) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Split rows into batches whose padded size (rows times longest) is at most `budget` tokens.

    Rows are sorted by (length, index), so the split depends on the lengths alone. A row longer than the budget is a
    batch of its own.

    Args:
        lengths: tokens of each row, special tokens included, shape (rows,).
        budget: tokens of a padded batch.
    Returns:
        Row indices of each batch.
    """
    order = np.argsort(lengths, kind="stable").astype(np.int64)
    batches, start = [], 0
    for end in range(1, len(order) + 1):
        if end == len(order) or int(lengths[order[end]]) * (end + 1 - start) > budget:
            batches.append(order[start:end])
            start = end
    return batches
