"""The hinge (triplet) loss: a better passage leads a worse one by a margin, or the shortfall is paid."""

from torch import Tensor

from tandem.training.losses.pairs import Pairs


def hinge(scores: Tensor, mask: Tensor, *, margin: float = 1.0) -> Tensor:
    """max(0, m - (s(q,p+) - s(q,p-))), averaged over each query's negatives, summed over queries.

    The ranking SVM's loss (Joachims 2002), there with m = 1. The triplet loss max(0, d(q,p+) - d(q,p-) + m) is the same
    with the distance d = -s; sentence-transformers' `TripletLoss` takes the Euclidean distance and m = 5 unless told.
    Sums over all pairs, as surveys write it, grow with the list; here the list's length does not matter.

    Args:
        scores: s(q, p) with the positive first, shape (queries, passages).
        mask: True where a passage counts, same shape.
        margin: m, in the scores' unit.
    Returns:
        Scalar, in the scores' unit; 0 for a list without negatives.
    """
    pairs = Pairs.of_first(scores, mask)
    return pairs.mean((margin - pairs.lead).relu())


def hinge_distillation(student: Tensor, teacher: Tensor, mask: Tensor, *, margin: float = 1.0) -> Tensor:
    """max(0, m - (s_i - s_j)), averaged over each list's pairs with t_i > t_j, summed over queries.

    As `hinge`, with the order of all passages from the teacher's scores t, which have no gradient.

    Args:
        student: s(q, p), shape (queries, passages).
        teacher: t(q, p), same shape.
        mask: True where a passage stands, same shape.
        margin: m, in the student's unit.
    Returns:
        Scalar, in the student's unit; 0 for a list whose passages the teacher all scores the same.
    """
    pairs = Pairs.of_teacher(student, teacher, mask)
    return pairs.mean((margin - pairs.lead).relu())
