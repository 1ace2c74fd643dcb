"""Margin-MSE (Hofstätter et al. 2020): regression on a teacher's margins."""

from torch import Tensor

from tandem.training.losses.pairs import Pairs


def margin_mse(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """((s(q,p+) - s(q,p-)) - (t(q,p+) - t(q,p-)))², averaged over each query's negatives, summed over queries.

    The paper has one negative. With n negatives in every list this is what sentence-transformers' `MarginMSELoss`
    computes: it averages over all (query, negative) pairs of a batch, so longer lists would weigh more.

    Args:
        student: s(q, p) with the positive first, shape (queries, passages).
        teacher: t(q, p) in the unit that the student shall learn, no gradient, same shape.
        mask: True where a passage stands, same shape.
    Returns:
        Scalar, in squared units of the scores; 0 for a list without negatives.
    """
    pairs = Pairs.of_first(student - teacher.detach(), mask)
    return pairs.mean(pairs.lead.square())
