"""RankNet (Burges et al. 2005): cross-entropy of which of two passages is the better one."""

from torch import Tensor
from torch.nn.functional import softplus

from tandem.training.losses.pairs import Pairs


def ranknet(scores: Tensor, mask: Tensor) -> Tensor:
    """log(1 + e^{-(s(q,p+) - s(q,p-))}), averaged over each query's negatives, summed over queries.

    The paper's cost with the target probability 1. It sums over pairs; sentence-transformers'
    `RankNetLoss` averages over all pairs of a batch, in bits (this over ln 2).

    Args:
        scores: s(q, p) with the positive first, shape (queries, passages).
        mask: True where a passage counts, same shape.
    Returns:
        Scalar, in nats; 0 for a list without negatives.
    """
    pairs = Pairs.of_first(scores, mask)
    return pairs.mean(softplus(-pairs.lead))


def ranknet_distillation(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """log(1 + e^{-(s_i - s_j)}), averaged over each list's pairs with t_i > t_j, summed over queries.

    As `ranknet`, with the order of all passages from the teacher's scores t, which have no gradient.

    Args:
        student: s(q, p), shape (queries, passages).
        teacher: t(q, p), any scale, same shape.
        mask: True where a passage stands, same shape.
    Returns:
        Scalar, in nats; 0 for a list whose passages the teacher all scores the same.
    """
    pairs = Pairs.of_teacher(student, teacher, mask)
    return pairs.mean(softplus(-pairs.lead))
