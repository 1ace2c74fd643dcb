"""Micro-batches by token budget: rows of similar length together, so that little is computed for padding."""

from typing import Any

import numpy as np

from tandem.models.ragged import Ids

OVERHEAD = 64  # tokens: about what another forward and backward pass costs a small encoder on a CPU
PARTS = (1, 2, 3, 4, 6, 8, 12, 16)


def token_batches(lengths: Ids, budget: int, packed: bool = False) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Split rows into batches of at most `budget` tokens: rows times longest, or where packed the sum of the lengths.

    Rows are sorted by (length, index), so the split depends on the lengths alone. A row longer than the budget is a
    batch of its own.

    Args:
        lengths: tokens of each row, special tokens included, shape (rows,).
        budget: tokens of a batch.
        packed: whether rows are laid end to end, without padding.
    Returns:
        Row indices of each batch.
    """
    order = np.argsort(lengths, kind="stable").astype(np.int64)
    ordered = lengths[order]
    batches, start = [], 0
    while start < len(order):
        shortest = int(ordered[start])
        ahead = ordered[start : start + max(1, budget // shortest)] if shortest else ordered[start:]
        sizes = np.cumsum(ahead) if packed else ahead * np.arange(1, len(ahead) + 1)
        end = start + max(1, int(np.searchsorted(sizes, budget, side="right")))
        batches.append(order[start:end])
        start = end
    return batches


def micro_batches(lengths: Ids, budget: int, multiple: int, packed: int | None) -> list[Ids]:
    """`token_batches` for a training: the smaller the batches, the less padding, but each costs `OVERHEAD`.

    Args:
        lengths: tokens of each row, special tokens included, shape (rows,).
        budget: tokens of a padded batch, at most.
        multiple: lengths are padded to one.
        packed: tokens of a packed row, which has no padding; None where rows are padded.
    Returns:
        Row indices of each batch; of budgets that are parts of `budget`, those of the least cost.
    """
    if packed is not None:
        return token_batches(lengths, packed, packed=True)
    padded = -(-lengths // multiple) * multiple
    tried = [token_batches(padded, max(1, budget // part)) for part in PARTS]

    def cost(batches: list[Ids]) -> int:
        """Tokens that are computed, and what the batches cost beside, in tokens."""
        return sum(len(rows) * int(padded[rows[-1]]) + OVERHEAD for rows in batches)

    return min(tried, key=cost)
