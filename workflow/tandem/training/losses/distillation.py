"""Listwise distillation between a retriever and a re-ranker, in the paper's and in the released code's meaning."""

from torch import Tensor


def dynamic_listwise_distillation(retriever: Tensor, reranker: Tensor, mask: Tensor) -> Tensor:
    """KL(retriever ‖ re-ranker) over each query's list, summed over the list and over queries.

    RocketQAv2 Eq. 4, with the softmax of Eqs. 2 and 3. Both sides learn: no gradient is stopped.

    Args:
        retriever: s_de(q, p), shape (queries, passages), any real scale.
        reranker: s_ce(q, p), same shape.
        mask: True where a passage stands, same shape.
    Returns:
        Scalar, in nats.
    """
    return divergence(retriever, reranker, mask).sum()


def reference_listwise_distillation(retriever: Tensor, reranker: Tensor, mask: Tensor) -> Tensor:
    """KL(re-ranker ‖ retriever) divided by the list's length, summed over queries; only the retriever learns.

    What RocketQAv2's released `joint_encoder.py` computes: Paddle's `kldiv_loss` takes the re-ranker as its target,
    averages over all elements of (queries, passages), and has no gradient for the target.

    Args and returns: as `dynamic_listwise_distillation`.
    """
    return (divergence(reranker.detach(), retriever, mask).sum(-1) / mask.sum(-1)).sum()


def divergence(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """The terms p log(p / q) of KL(softmax(first) ‖ softmax(second)); 0 where no passage stands."""
    log_p = first.masked_fill(~mask, float("-inf")).log_softmax(-1).masked_fill(~mask, 0.0)
    log_q = second.masked_fill(~mask, float("-inf")).log_softmax(-1).masked_fill(~mask, 0.0)
    return (log_p.exp() * (log_p - log_q)).masked_fill(~mask, 0.0)
