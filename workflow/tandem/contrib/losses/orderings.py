"""Losses that depend on the order of a whole list: ApproxNDCG, ListMLE."""

import torch
from torch import Tensor

from tandem.config.losses import distillation, supervision

_RANK_TEMPERATURE = 0.1  # T of `approx_ndcg`, TF-Ranking's default; the paper's α = 1/T


@supervision("approx_ndcg")
def approx_ndcg(scores: Tensor, mask: Tensor) -> Tensor:
    """1 - 1 / log2(1 + r(p+)) with r(p+) = 1 + Σ_{p-} σ((s(q,p-) - s(q,p+)) / T), summed over queries; T = 0.1.

    ApproxNDCG (Qin, Liu and Li 2010; Bruch et al. 2019): 1 - nDCG with the positive's rank made smooth. Its gain is 1
    and the ideal DCG is 1. If scores are far apart compared with T, there is almost no gradient. TF-Ranking's
    `ApproxNDCGLoss` is this minus 1, averaged over queries.

    Args:
        scores: s(q, p) with the positive first, shape (queries, passages).
        mask: True where a passage counts, same shape; the first column is always True.
    Returns:
        Scalar, 0 to 1 for each query; 0 for a list without negatives.

    >>> scores = torch.zeros(1, 3)
    >>> round(approx_ndcg(scores, scores == 0).item(), 4)  # r(p+) = 1 + 1/2 + 1/2: 1 - 1 / log2(3)
    0.3691
    """
    lead = scores[:, 1:] - scores[:, :1]
    above = (lead / _RANK_TEMPERATURE).sigmoid().masked_fill(~mask[:, 1:], 0.0)
    rank_plus_one = 2 + above.sum(-1)
    ndcg = 1 / rank_plus_one.log2()
    return (1 - ndcg).sum()


@distillation("listmle", reads="order")
def listmle(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """-Σ_i log( e^{s_π(i)} / Σ_{k ≥ i} e^{s_π(k)} ), π the teacher's order, summed over queries.

    The negative log-likelihood of π under the Plackett-Luce model of the student's scores. Passages that the teacher
    scores equally keep the list's order. The first term is `listwise` if the teacher ranks the positive first.
    sentence-transformers' `ListMLELoss` takes the order of its input and averages over queries.

    Args:
        student: s(q, p), shape (queries, passages).
        teacher: orders the passages, any scale, no gradient, same shape.
        mask: True for passages, False for padding, same shape.
    Returns:
        Scalar, in nats.
    """
    order = (
        teacher.detach()
        .masked_fill(~mask, float("-inf"))
        .argsort(dim=-1, descending=True, stable=True)
    )
    is_passage = mask.gather(1, order)
    scores = student.gather(1, order).masked_fill(~is_passage, torch.finfo(student.dtype).min)
    # log Σ_{k ≥ i} e^{s_π(k)}: a running sum from the end of the list.
    remaining = scores.flip(-1).logcumsumexp(-1).flip(-1)
    return (remaining - scores).masked_fill(~is_passage, 0.0).sum()
