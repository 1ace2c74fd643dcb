"""LambdaRank (Burges et al. 2006): RankNet whose pairs weigh what swapping them would change in nDCG."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from tandem.training.losses.pairs import Pairs


def lambdarank(scores: Tensor, mask: Tensor) -> Tensor:
    """Σ_{p-} |ΔnDCG(p+, p-)| log(1 + e^{-(s(q,p+) - s(q,p-))}), summed over queries.

    LambdaRank as a loss, in the reading of the LambdaLoss framework (Wang et al. 2018). The positive's gain is 1 and
    the ideal DCG is 1, so ΔnDCG is |1/log2(1 + r(p+)) - 1/log2(1 + r(p-))| with r the ranks by `scores`, which have no
    gradient. The framework takes log2 (this over ln 2); sentence-transformers' `LambdaLoss` also averages over pairs.

    Args:
        scores: s(q, p) with the positive first, shape (queries, passages).
        mask: True where a passage counts, same shape.
    Returns:
        Scalar, in nats weighted by nDCG; 0 for a list without negatives.
    """
    pairs = Pairs.of_first(scores, mask)
    discount = discounts(scores, mask)
    return pairs.sum((discount[:, :1] - discount[:, 1:]).abs() * softplus(-pairs.lead))


def lambdarank_distillation(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """Σ_{t_i > t_j} |ΔnDCG(i, j)| log(1 + e^{-(s_i - s_j)}), summed over queries.

    As `lambdarank`, with |ΔnDCG(i, j)| = |G_i - G_j| |1/log2(1 + r_i) - 1/log2(1 + r_j)| / idealDCG and the gain
    G = 2^y - 1. A teacher's scores are no grades, so y is 1/rank in the teacher's order, as RankGPT's students learn;
    passages of equal score share the better rank.

    Args:
        student: s(q, p), shape (queries, passages).
        teacher: t(q, p), any scale, same shape.
        mask: True where a passage stands, same shape.
    Returns:
        Scalar, in nats weighted by nDCG; 0 for a list whose passages the teacher all scores the same.
    """
    pairs = Pairs.of_teacher(student, teacher, mask)
    # pairs.there[q, i, j] is t_i > t_j: the column's sum counts the passages that are better than j.
    gain = (torch.exp2(1.0 / (1 + pairs.there.sum(1)).to(student)) - 1.0).masked_fill(~mask, 0.0)
    discount = discounts(student, mask)
    ideal = (gain.sort(-1, descending=True).values * by_rank(mask.shape[1], student)).sum(-1)
    delta = (gain[:, :, None] - gain[:, None, :]) * (discount[:, :, None] - discount[:, None, :])
    return pairs.sum(delta.abs() / ideal[:, None, None] * softplus(-pairs.lead))


def discounts(scores: Tensor, mask: Tensor) -> Tensor:
    """1 / log2(1 + rank) of each passage by falling score, ties in the list's order; no gradient, scores' shape."""
    ranked = scores.detach().masked_fill(~mask, float("-inf")).argsort(dim=-1, descending=True, stable=True)
    return by_rank(scores.shape[1], scores)[ranked.argsort(-1)]


def by_rank(count: int, like: Tensor) -> Tensor:
    """1 / log2(1 + rank) for the ranks 1 to count."""
    return 1.0 / torch.arange(2, count + 2, dtype=like.dtype, device=like.device).log2()
