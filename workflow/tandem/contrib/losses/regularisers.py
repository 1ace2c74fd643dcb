"""SPLADE's regularisers of a dual encoder's vectors."""

from torch import Tensor

from tandem.config.losses import regulariser


@regulariser("flops")
def flops(vectors: Tensor) -> Tensor:
    """Σ_j ( (1/n) Σ_i |w_ij| )², the n texts' mean activation of each dimension, squared.

    Paria et al. 2020, the regulariser of SPLADE: a smooth stand-in for the number of products that one query costs in
    an inverted index. It is not a sum over texts, so it needs all texts of the batch. `vectors` are w, shape (texts,
    dim); the result is a scalar.
    """
    return vectors.abs().mean(0).square().sum()


@regulariser("l1")
def l1(vectors: Tensor) -> Tensor:
    """(1/n) Σ_i Σ_j |w_ij|, the mean L1 norm of the n texts' vectors, shape (texts, dim)."""
    return vectors.abs().sum(1).mean()
