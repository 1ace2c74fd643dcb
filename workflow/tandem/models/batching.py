"""Micro-batches by token budget: rows of similar length together, so that little is computed for padding."""

from typing import Any

import numpy as np

from tandem.models.ragged import Ids

OVERHEAD = 128  # tokens: about what another forward and backward pass costs in casts of weights and sums of gradients


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
    """Batches for a training: the smaller they are, the less padding, but each costs `OVERHEAD`.

    Rows are sorted by (padded length, index) and cut where the sum of computed tokens and overheads is least, by
    dynamic programming over the distinct padded lengths.

    Args:
        lengths: tokens of each row, special tokens included, shape (rows,).
        budget: tokens of a padded batch, at most; a row longer than it is a batch of its own.
        multiple: lengths are padded to one.
        packed: tokens of a packed row, which has no padding; None where rows are padded.
    Returns:
        Row indices of each batch.
    """
    if packed is not None:
        return token_batches(lengths, packed, packed=True)
    padded = -(-lengths // multiple) * multiple
    order = np.argsort(padded, kind="stable").astype(np.int64)
    longest, counts = np.unique(padded, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(counts)])
    best, cuts = np.zeros(len(ends)), np.zeros(len(ends), np.int64)
    for end in range(1, len(ends)):
        rows, width = ends[end] - ends[:end], longest[end - 1]
        costs = best[:end] + rows * width + OVERHEAD * _batches(rows, width, budget)
        cuts[end] = np.argmin(costs)
        best[end] = costs[cuts[end]]
    made: list[Ids] = []
    end = len(longest)
    while end:
        rows = order[ends[cuts[end]] : ends[end]]
        made = [*np.array_split(rows, _batches(len(rows), longest[end - 1], budget)), *made]
        end = cuts[end]
    return made


def _batches(rows: Any, width: int, budget: int) -> Any:
    """How many batches of at most `budget` tokens rows of this width make; counts or arrays of them."""
    return -(-rows // max(1, budget // width))
