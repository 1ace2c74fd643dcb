"""Softmax cross-entropy over each query's list."""

from torch import Tensor


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
