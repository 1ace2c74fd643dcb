"""The papers' losses, all over whole lists: softmax and binary cross-entropy, and KL from a teacher.

The KL divergences take the list's softmax on both sides.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tandem.config.losses import distillation, supervision


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

    >>> scores = torch.zeros(1, 2)
    >>> round(listwise(scores, scores == 0).item(), 4)  # ln 2
    0.6931
    """
    log_probabilities = scores.masked_fill(~mask, float("-inf")).log_softmax(dim=-1)
    return -log_probabilities[:, 0].sum()


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

    >>> scores = torch.zeros(1, 2)
    >>> round(pointwise(scores, scores == 0).item(), 4)  # (ln 2 + ln 2) / 2
    0.6931
    """
    sign = torch.full_like(scores, -1.0)
    sign[:, 0] = 1.0
    # 1 - σ(s) = σ(-s)
    losses = -logsigmoid(sign * scores).masked_fill(~mask, 0.0)
    return sum_list_means(losses, mask)


@distillation("paper")
def dynamic_listwise_distillation(retriever: Tensor, reranker: Tensor, mask: Tensor) -> Tensor:
    """KL(retriever ‖ re-ranker) over each query's list, summed over the list and over queries.

    RocketQAv2 Eq. 4, with the softmax of Eqs. 2 and 3. Both sides learn: no gradient is stopped.

    Args:
        retriever: s_de(q, p), shape (queries, passages), any real scale.
        reranker: s_ce(q, p), same shape.
        mask: True for passages, False for padding, same shape.
    Returns:
        Scalar, in nats.

    >>> equal, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    >>> reranker = torch.tensor([[0.0, 3.0]]).log1p()  # softmax (1/5, 4/5)
    >>> round(dynamic_listwise_distillation(equal, reranker, mask).item(), 4)  # ln(5/2)/2 + ln(5/8)/2
    0.2231
    """
    return compute_divergence(retriever, reranker, mask).sum()


@distillation("reference")
def reference_listwise_distillation(retriever: Tensor, reranker: Tensor, mask: Tensor) -> Tensor:
    """KL(re-ranker ‖ retriever) divided by the list's length, summed over queries; only the retriever learns.

    RocketQAv2's released `joint_encoder.py` computes this: Paddle's `kldiv_loss` takes the re-ranker as its target,
    averages over all elements of (queries, passages), and has no gradient for the target.
    """
    return sum_list_means(compute_divergence(reranker.detach(), retriever, mask), mask)


def sum_list_means(values: Tensor, mask: Tensor) -> Tensor:
    """Return the sum over lists of the mean over each list's passages; `values` must be 0 where `mask` is False."""
    mean_of_lists = values.sum(-1) / mask.sum(-1)
    return mean_of_lists.sum()


def compute_divergence(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """Compute the terms p log(p / q) of KL(softmax(first) ‖ softmax(second)), with 0 in place of padding."""
    # -inf keeps padding out of the softmax; 0 in its place afterwards keeps NaN out of the gradient.
    log_p = first.masked_fill(~mask, float("-inf")).log_softmax(-1).masked_fill(~mask, 0.0)
    log_q = second.masked_fill(~mask, float("-inf")).log_softmax(-1).masked_fill(~mask, 0.0)
    terms = log_p.exp() * (log_p - log_q)
    return terms.masked_fill(~mask, 0.0)
