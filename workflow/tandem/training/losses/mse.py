"""Regression on a teacher's scores."""

from torch import Tensor


def mse(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """(s(q,p) - t(q,p))², averaged over each query's passages, summed over queries.

    Regression on the teacher's logits (Ba & Caruana 2014); sentence-transformers' `MSELoss` of a cross-encoder. Unlike
    Margin-MSE it fixes the scores' origin too, which a student of another range cannot reach.

    Args:
        student: s(q, p), shape (queries, passages).
        teacher: t(q, p) in the unit that the student shall learn, no gradient, same shape.
        mask: True where a passage stands, same shape.
    Returns:
        Scalar, in squared units of the scores.
    """
    errors = (student - teacher.detach()).masked_fill(~mask, 0.0).square()
    return (errors.sum(-1) / mask.sum(-1)).sum()
