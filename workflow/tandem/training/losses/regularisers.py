"""Sparsity of the vectors: regularisers of a whole batch's texts, of one side."""

from torch import Tensor

from tandem.training.losses import regulariser


@regulariser("flops")
def flops(vectors: Tensor) -> Tensor:
    """Σ_j ( (1/n) Σ_i |w_ij| )², the n texts' mean activation of each dimension, squared.

    Paria et al. 2020, the regulariser of SPLADE: a smooth stand-in for the number of products that one query costs in
    an inverted index. It does not fall apart over texts: it needs all of the batch's.

    Args:
        vectors: w, shape (texts, dim).
    Returns:
        Scalar.
    """
    return vectors.abs().mean(0).square().sum()


@regulariser("l1")
def l1(vectors: Tensor) -> Tensor:
    """(1/n) Σ_i Σ_j |w_ij|, the mean L1 norm of the n texts' vectors.

    Args and returns: as `flops`.
    """
    return vectors.abs().sum(1).mean()


def ramp(step: int, steps: int) -> float:
    """min(1, (t / steps)²) at step t, counted from 1: the quadratic growth of a regulariser's weight in SPLADE.

    Args:
        step: steps done before this one.
        steps: how long the weight grows; 0: it is full at once.
    """
    return min(1.0, ((step + 1) / steps) ** 2) if steps else 1.0
