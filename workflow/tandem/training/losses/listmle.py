"""ListMLE (Xia et al. 2008): the likelihood of a whole order."""

import torch
from torch import Tensor


def listmle(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """-Σ_i log( e^{s_π(i)} / Σ_{k ≥ i} e^{s_π(k)} ), π the teacher's order, summed over queries.

    The likelihood of π under the Plackett-Luce model of the student's scores. Passages of equal teacher's score keep
    the list's order. The first term alone is `listwise`, where the teacher likes the positive best.
    sentence-transformers' `ListMLELoss` takes the order of its input and averages over queries.

    Args:
        student: s(q, p), shape (queries, passages).
        teacher: orders the passages, any scale, no gradient, same shape.
        mask: True where a passage stands, same shape.
    Returns:
        Scalar, in nats.
    """
    order = teacher.detach().masked_fill(~mask, float("-inf")).argsort(dim=-1, descending=True, stable=True)
    stands = mask.gather(1, order)
    scores = student.gather(1, order).masked_fill(~stands, torch.finfo(student.dtype).min)
    remaining = scores.flip(-1).logcumsumexp(-1).flip(-1)  # log Σ_{k ≥ i} e^{s_π(k)}
    return (remaining - scores).masked_fill(~stands, 0.0).sum()
