"""Losses of pairs of passages, one of which should score higher."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import softplus

from tandem.config.losses import distillation, supervision


@dataclass(frozen=True)
class RankedPairs:
    """Hold the pairs (better, worse) of each query's list.

    Attributes:
        lead: s(q, better) - s(q, worse), 0 where there is no pair, shape (queries, …).
        there: True where there is a pair, same shape.
    """

    lead: Tensor
    there: Tensor

    @classmethod
    def of_first(cls, scores: Tensor, mask: Tensor) -> Self:
        """Pair the first passage, if it counts, with each other one, shape (queries, passages - 1)."""
        lead = scores[:, :1] - scores[:, 1:]
        both = mask[:, :1] & mask[:, 1:]
        return cls._keep_where(lead, both)

    @classmethod
    def of_teacher(cls, student: Tensor, teacher: Tensor, mask: Tensor) -> Self:
        """Pair every passage with each one that the teacher scores lower, shape (queries, passages, passages).

        Passages that the teacher scores equally are not a pair. The teacher only gives the order: it has no gradient.
        """
        lead = student[:, :, None] - student[:, None, :]
        is_higher = teacher[:, :, None] > teacher[:, None, :]
        both = mask[:, :, None] & mask[:, None, :]
        return cls._keep_where(lead, is_higher & both)

    @classmethod
    def _keep_where(cls, lead: Tensor, there: Tensor) -> Self:
        return cls(lead.masked_fill(~there, 0.0), there)

    def sum(self, values: Tensor) -> Tensor:
        """Sum the pairs' values over all lists."""
        return values.masked_fill(~self.there, 0.0).sum()

    def mean(self, values: Tensor) -> Tensor:
        """Return the sum over lists of the mean over each list's pairs; 0 for a list without a pair."""
        sums = values.masked_fill(~self.there, 0.0).flatten(1).sum(1)
        counts = self.there.flatten(1).sum(1)
        mean_of_lists = sums / counts.clamp(min=1)
        return mean_of_lists.sum()


@supervision("hinge")
def hinge(scores: Tensor, mask: Tensor, *, margin: float = 1.0) -> Tensor:
    """max(0, m - (s(q,p+) - s(q,p-))), averaged over each query's negatives, summed over queries.

    The ranking SVM's loss (Joachims 2002), there with m = 1. The triplet loss max(0, d(q,p+) - d(q,p-) + m) is the same
    with the distance d = -s; sentence-transformers' `TripletLoss` takes the Euclidean distance and m = 5 by default.
    A sum over all pairs, as in surveys, grows with the list; here the list's length does not matter.

    Args:
        scores: s(q, p) with the positive first, shape (queries, passages).
        mask: True where a passage counts, same shape.
        margin: m, in the scores' unit.
    Returns:
        Scalar, in the scores' unit; 0 for a list without negatives.

    >>> scores = torch.tensor([[2.0, 1.5, 0.0]])
    >>> hinge(scores, torch.ones(1, 3, dtype=torch.bool)).item()  # (1/2 + 0) / 2
    0.25
    """
    pairs = RankedPairs.of_first(scores, mask)
    return pairs.mean((margin - pairs.lead).relu())


@distillation("hinge", reads="pairs")
def hinge_distillation(
    student: Tensor, teacher: Tensor, mask: Tensor, *, margin: float = 1.0
) -> Tensor:
    """max(0, m - (s_i - s_j)), averaged over each list's pairs with t_i > t_j, summed over queries.

    As `hinge`, with the order of all passages from the teacher's scores t, which have no gradient.

    Args:
        student: s(q, p), shape (queries, passages).
        teacher: t(q, p), same shape.
        mask: True for passages, False for padding, same shape.
        margin: m, in the student's unit.
    Returns:
        Scalar, in the student's unit; 0 for a list whose passages all have the same teacher's score.
    """
    pairs = RankedPairs.of_teacher(student, teacher, mask)
    return pairs.mean((margin - pairs.lead).relu())


@supervision("ranknet")
def ranknet(scores: Tensor, mask: Tensor) -> Tensor:
    """log(1 + e^{-(s(q,p+) - s(q,p-))}), averaged over each query's negatives, summed over queries.

    The paper's cost with the target probability 1. It sums over pairs; sentence-transformers'
    `RankNetLoss` averages over all pairs of a batch, in bits (this over ln 2).

    Args and returns: as `hinge`, in nats.
    """
    pairs = RankedPairs.of_first(scores, mask)
    return pairs.mean(softplus(-pairs.lead))


@distillation("ranknet", reads="pairs")
def ranknet_distillation(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """log(1 + e^{-(s_i - s_j)}), averaged over each list's pairs with t_i > t_j, summed over queries.

    As `ranknet`, with the order of all passages from the teacher's scores t, which have no gradient.

    Args and returns: as `hinge_distillation`, in nats.
    """
    pairs = RankedPairs.of_teacher(student, teacher, mask)
    return pairs.mean(softplus(-pairs.lead))


@supervision("lambdarank")
def lambdarank(scores: Tensor, mask: Tensor) -> Tensor:
    """Σ_{p-} |ΔnDCG(p+, p-)| log(1 + e^{-(s(q,p+) - s(q,p-))}), summed over queries.

    LambdaRank as a loss, in the reading of the LambdaLoss framework (Wang et al. 2018). The positive's gain is 1 and
    the ideal DCG is 1, so ΔnDCG is |1/log2(1 + r(p+)) - 1/log2(1 + r(p-))| with r the ranks by `scores`, which have no
    gradient. The framework takes log2 (this over ln 2); sentence-transformers' `LambdaLoss` also averages over pairs.

    Args and returns: as `hinge`, in nats weighted by nDCG.
    """
    pairs = RankedPairs.of_first(scores, mask)
    discounts = discount_ranks(scores, mask)
    delta = (discounts[:, :1] - discounts[:, 1:]).abs()
    return pairs.sum(delta * softplus(-pairs.lead))


@distillation("lambdarank", reads="pairs")
def lambdarank_distillation(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """Σ_{t_i > t_j} |ΔnDCG(i, j)| log(1 + e^{-(s_i - s_j)}), summed over queries.

    As `lambdarank`, with |ΔnDCG(i, j)| = |G_i - G_j| |1/log2(1 + r_i) - 1/log2(1 + r_j)| / idealDCG and the gain
    G = 2^y - 1. A teacher's scores are not grades, so y is 1/rank in the teacher's order, as RankGPT's students learn;
    passages of equal score share the better rank.

    Args and returns: as `hinge_distillation`, in nats weighted by nDCG.
    """
    pairs = RankedPairs.of_teacher(student, teacher, mask)
    # pairs.there[q, i, j] is t_i > t_j: the column's sum counts the passages that are better than j.
    teacher_ranks = 1 + pairs.there.sum(1)
    gains = (torch.exp2(1.0 / teacher_ranks.to(student)) - 1.0).masked_fill(~mask, 0.0)
    best_first = gains.sort(-1, descending=True).values
    ideal = (best_first * list_discounts(mask.shape[1], student)).sum(-1)

    discounts = discount_ranks(student, mask)
    gain_differences = gains[:, :, None] - gains[:, None, :]
    discount_differences = discounts[:, :, None] - discounts[:, None, :]
    delta = gain_differences * discount_differences
    return pairs.sum(delta.abs() / ideal[:, None, None] * softplus(-pairs.lead))


@supervision("lambda_mrr")
def lambda_mrr_of_first(scores: Tensor, mask: Tensor) -> Tensor:
    """|1/r(p+) - 1/r(p-)| log(1 + e^{-(s(q,p+) - s(q,p-))}), averaged over each query's negatives, summed over queries.

    ADORE's loss (Zhan et al. 2021 §4.2) for one positive; r are the ranks by `scores`, which have no gradient. For a
    positive that is not retrieved, the release takes 0 as its reciprocal rank; here its rank follows all others.

    Args and returns: as `hinge`, in nats weighted by reciprocal ranks.

    >>> mask = torch.ones(1, 3, dtype=torch.bool)
    >>> round(lambda_mrr_of_first(torch.tensor([[1.0, 1.0, 0.0]]), mask).item(), 4)  # ranks 1, 2, 3
    0.2777
    """
    pairs = RankedPairs.of_first(scores, mask)
    reciprocal = 1.0 / (1 + rank_by_score(scores, mask)).to(scores)
    delta = (reciprocal[:, :1] - reciprocal[:, 1:]).abs()
    return pairs.mean(delta * softplus(-pairs.lead))


@distillation("lambda_mrr", reads="pairs")
def lambda_mrr(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """|1/r_i - 1/r_j| log(1 + e^{-(s_i - s_j)}), averaged over each list's pairs with t_i > t_j, summed over queries.

    LambdaRank for the reciprocal rank, in CL-DRD's released code; r are the ranks by `student`, which have no gradient.
    The release averages over all pairs of a batch.

    Args and returns: as `hinge_distillation`, in nats weighted by reciprocal ranks.
    """
    pairs = RankedPairs.of_teacher(student, teacher, mask)
    reciprocal = 1.0 / (1 + rank_by_score(student, mask)).to(student)
    delta = (reciprocal[:, :, None] - reciprocal[:, None, :]).abs()
    return pairs.mean(delta * softplus(-pairs.lead))


def discount_ranks(scores: Tensor, mask: Tensor) -> Tensor:
    """Return 1 / log2(1 + rank) of each passage, ranked by falling score, ties in the list's order; no gradient."""
    return list_discounts(scores.shape[1], scores)[rank_by_score(scores, mask)]


def rank_by_score(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the rank of each passage by falling score, from 0, ties in the list's order, in the shape of `scores`."""
    best_first = (
        scores.detach()
        .masked_fill(~mask, float("-inf"))
        .argsort(dim=-1, descending=True, stable=True)
    )
    return best_first.argsort(-1)  # the inverse of the order: each passage's place in it


def list_discounts(count: int, like: Tensor) -> Tensor:
    """Return 1 / log2(1 + rank) for the ranks 1 to count."""
    ranks_plus_one = torch.arange(2, count + 2, dtype=like.dtype, device=like.device)
    return 1.0 / ranks_plus_one.log2()
