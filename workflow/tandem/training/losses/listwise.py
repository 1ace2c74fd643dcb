"""Losses of whole lists: softmax cross-entropy, binary cross-entropy of each pair, ListMLE."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tandem.training.losses import distillation, supervision


@supervision("listwise")
def listwise(scores: Tensor, mask: Tensor) -> Tensor:
    """-log( e^{s(q,p+)} / (e^{s(q,p+)} + Σ_{p-} e^{s(q,p-)}) ), summed over queries.

    RocketQAv2 Eq. 5 (there averaged over the N queries) for a cross-encoder; the same formula is the dual encoder's
    loss in DPR and RocketQA, with the batch's other passages among the negatives.

    Args:
        scores: s(q, p) with the positive first, shape (queries, passages).
        mask: True where a passage counts, same shape; the first column is always True.
    Returns:
        Scalar, in nats.
    """
    return -scores.masked_fill(~mask, float("-inf")).log_softmax(dim=-1)[:, 0].sum()


@supervision("pointwise")
def pointwise(scores: Tensor, mask: Tensor) -> Tensor:
    """-log σ(s(q,p+)) - Σ_{p-} log(1 - σ(s(q,p-))), averaged over each query's passages, summed over queries.

    The cross-encoder's loss of RocketQA and the DuReader-retrieval baseline. They use a softmax over two outputs; one
    output s = s_1 - s_0 with a sigmoid is the same function.

    Args:
        scores: logits of relevance with the positive first, shape (queries, passages).
        mask: True where a passage counts, same shape.
    Returns:
        Scalar, in nats.
    """
    sign = torch.full_like(scores, -1.0)
    sign[:, 0] = 1.0
    losses = -logsigmoid(sign * scores).masked_fill(~mask, 0.0)
    return (losses.sum(-1) / mask.sum(-1)).sum()


@distillation("listmle")
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
