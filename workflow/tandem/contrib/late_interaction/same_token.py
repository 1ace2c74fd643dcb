"""Ids of tokens among the numbers of their vectors, so that a vector meets those of the same token alone."""

from typing import Any

# the base in which ids stand among a vector's numbers: fp16 has every whole number up to it
DIGIT = 2048


def join_digits(rows: Any) -> Any:
    """Return the ids of tokens that arrays or tensors of shape (…, numbers) have in their last two numbers.

    0 stands for no token.
    """
    return rows[..., -2] * DIGIT + rows[..., -1]
