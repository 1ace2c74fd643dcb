"""Compute dot products of pairs of vectors on a GPU, in one kernel of Triton, which PyTorch for CUDA installs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_NUMBERS = 1024  # most numbers of a vector that are read at once


@triton.jit  # type: ignore[untyped-decorator]
def _sum_products(queries, passages, query, row, sums, dimension, NUMBERS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the dot product of one pair; each program of the kernel has its own pair."""
    pair = tl.program_id(0).to(tl.int64)
    first = queries + tl.load(query + pair) * dimension
    second = passages + tl.load(row + pair) * dimension
    total = tl.zeros((NUMBERS,), tl.float64)
    for start in range(0, dimension, NUMBERS):
        numbers = start + tl.arange(0, NUMBERS)
        inside = numbers < dimension
        factor = tl.load(first + numbers, mask=inside, other=0.0).to(tl.float64)
        total += factor * tl.load(second + numbers, mask=inside, other=0.0).to(tl.float64)
    tl.store(sums + pair, tl.sum(total, axis=0))


def sum_products(queries: Tensor, passages: Tensor, query: Tensor, row: Tensor) -> Tensor:
    """Return `queries[query] · passages[row]`, summed in float64, shape (pairs,).

    Args:
        queries, passages: contiguous, shape (texts, dim).
        query, row: int64, shape (pairs,).
    """
    dimension = queries.shape[1]
    sums = torch.empty(len(query), dtype=torch.float64, device=queries.device)
    numbers = min(_NUMBERS, triton.next_power_of_2(dimension))
    if len(query):
        _sum_products[(len(query),)](
            queries, passages, query, row, sums, dimension, NUMBERS=numbers, num_warps=1
        )
    return sums
