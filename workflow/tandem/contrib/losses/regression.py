"""Regression on a teacher's scores, or on their margins."""

from torch import Tensor

from tandem.config.losses import distillation
from tandem.contrib.losses.pairwise import RankedPairs
from tandem.training.losses.listwise import sum_list_means


@distillation("mse", reads="scale")
def mse(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """(s(q,p) - t(q,p))², averaged over each query's passages, summed over queries.

    Regression on the teacher's logits (Ba & Caruana 2014); sentence-transformers' `MSELoss` of a cross-encoder. Unlike
    Margin-MSE it also fixes the origin of the scores, which a student with another range cannot reach.

    Args:
        student: s(q, p), shape (queries, passages).
        teacher: t(q, p) in the unit that the student shall learn, no gradient, same shape.
        mask: True for passages, False for padding, same shape.
    Returns:
        Scalar, in squared units of the scores.

    >>> import torch
    >>> mse(torch.tensor([[1.0, 4.0]]), torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)).item()  # (1² + 4²) / 2
    8.5
    """
    errors = (student - teacher.detach()).masked_fill(~mask, 0.0)
    return sum_list_means(errors.square(), mask)


@distillation("mse_probability", reads="logits")
def mse_probability(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """(s(q,p) - σ(t(q,p)))², averaged over each query's passages, summed over queries.

    Augmented SBERT (Thakur et al. 2021), where s is a cosine and t a cross-encoder's logit, learned by `pointwise`.

    Args and returns: as `mse`; the teacher's scores are logits, the student's probabilities.
    """
    return mse(student, teacher.detach().sigmoid(), mask)


@distillation("margin_mse", reads="scale")
def margin_mse(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """((s(q,p+) - s(q,p-)) - (t(q,p+) - t(q,p-)))², averaged over each query's negatives, summed over queries.

    The paper has one negative. With n negatives in every list this is what sentence-transformers' `MarginMSELoss`
    computes: it averages over all (query, negative) pairs of a batch, so longer lists would weigh more.

    Args:
        student: s(q, p) with the positive first, shape (queries, passages).
        teacher: t(q, p) in the unit that the student shall learn, no gradient, same shape.
        mask: True for passages, False for padding, same shape.
    Returns:
        Scalar, in squared units of the scores; 0 for a list without negatives.

    >>> import torch
    >>> student, teacher = torch.tensor([[3.0, 1.0]]), torch.tensor([[9.0, 8.0]])
    >>> margin_mse(student, teacher, torch.ones(1, 2, dtype=torch.bool)).item()  # (2 - 1)²
    1.0
    """
    pairs = RankedPairs.of_first(student - teacher.detach(), mask)
    return pairs.mean(pairs.lead.square())
