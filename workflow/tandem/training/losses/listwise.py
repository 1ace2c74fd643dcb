"""Losses of whole lists: softmax and binary cross-entropy, ApproxNDCG, ListMLE, KL from a teacher, regression.

The KL divergences take the list's softmax on both sides. Their names say direction, temperature and reduction.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tandem.config.losses import distillation, supervision, teaches_scale

_RANK_TEMPERATURE = 0.1  # T of `approx_ndcg`, TF-Ranking's default; the paper's α = 1/T


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


@supervision("approx_ndcg")
def approx_ndcg(scores: Tensor, mask: Tensor) -> Tensor:
    """1 - 1 / log2(1 + r(p+)) with r(p+) = 1 + Σ_{p-} σ((s(q,p-) - s(q,p+)) / T), summed over queries; T = 0.1.

    ApproxNDCG (Qin, Liu and Li 2010; Bruch et al. 2019): 1 - nDCG with the positive's rank made smooth. Its gain is 1
    and the ideal DCG is 1. Where scores are far apart compared with T there is next to no gradient. TF-Ranking's
    `ApproxNDCGLoss` is this minus 1, averaged over queries.

    Args:
        scores: s(q, p) with the positive first, shape (queries, passages).
        mask: True where a passage counts, same shape; the first column is always True.
    Returns:
        Scalar, 0 to 1 for each query; 0 for a list without negatives.

    >>> scores = torch.zeros(1, 3)
    >>> round(approx_ndcg(scores, scores == 0).item(), 4)  # r(p+) = 1 + 1/2 + 1/2: 1 - 1 / log2(3)
    0.3691
    """
    lead = scores[:, 1:] - scores[:, :1]
    above = (lead / _RANK_TEMPERATURE).sigmoid().masked_fill(~mask[:, 1:], 0.0)
    rank_plus_one = 2 + above.sum(-1)
    ndcg = 1 / rank_plus_one.log2()
    return (1 - ndcg).sum()


@distillation("paper")
def dynamic_listwise_distillation(retriever: Tensor, reranker: Tensor, mask: Tensor) -> Tensor:
    """KL(retriever ‖ re-ranker) over each query's list, summed over the list and over queries.

    RocketQAv2 Eq. 4, with the softmax of Eqs. 2 and 3. Both sides learn: no gradient is stopped.

    Args:
        retriever: s_de(q, p), shape (queries, passages), any real scale.
        reranker: s_ce(q, p), same shape.
        mask: True where a passage stands, same shape.
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

    What RocketQAv2's released `joint_encoder.py` computes: Paddle's `kldiv_loss` takes the re-ranker as its target,
    averages over all elements of (queries, passages), and has no gradient for the target.
    """
    return sum_list_means(compute_divergence(reranker.detach(), retriever, mask), mask)


def sum_list_means(values: Tensor, mask: Tensor) -> Tensor:
    """Average the values of each list's passages, summed over lists; `values` are 0 where `mask` is False."""
    mean_of_lists = values.sum(-1) / mask.sum(-1)
    return mean_of_lists.sum()


def compute_divergence(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """Compute the terms p log(p / q) of KL(softmax(first) ‖ softmax(second)); 0 where no passage stands."""
    # -inf keeps what does not stand out of the softmax; 0 in its place afterwards keeps NaN out of the gradient.
    log_p = first.masked_fill(~mask, float("-inf")).log_softmax(-1).masked_fill(~mask, 0.0)
    log_q = second.masked_fill(~mask, float("-inf")).log_softmax(-1).masked_fill(~mask, 0.0)
    terms = log_p.exp() * (log_p - log_q)
    return terms.masked_fill(~mask, 0.0)


@distillation("kl")
def kl(student: Tensor, teacher: Tensor, mask: Tensor, *, temperature: float = 1.0) -> Tensor:
    """KL(softmax(t/T) ‖ softmax(s/T)), summed over each list and over queries: torch's `batchmean`.

    lightning-ir and ColBERT (T = 1), tevatron (T, without the factor T²). Its gradient is that of ListNet's top-one
    cross-entropy (Cao et al. 2007), which is this plus the teacher's entropy.

    Args:
        student: s(q, p), shape (queries, passages).
        teacher: t(q, p), any scale, no gradient, same shape.
        mask: True where a passage stands, same shape.
        temperature: T, of both sides.
    Returns:
        Scalar, in nats.
    """
    return compute_divergence(teacher.detach() / temperature, student / temperature, mask).sum()


@distillation("kl_t2")
def kl_t2(student: Tensor, teacher: Tensor, mask: Tensor, *, temperature: float = 1.0) -> Tensor:
    """T² KL(softmax(t/T) ‖ softmax(s/T)), summed over each list and over queries.

    Hinton et al. 2015 §2: a softmax at T divides gradients by about T², which the factor makes up for, so that the
    weight beside a supervised loss need not change with T. sentence-transformers' `DistillKLDivLoss`.
    """
    return temperature**2 * kl(student, teacher, mask, temperature=temperature)


@distillation("kl_elementwise")
def kl_elementwise(
    student: Tensor, teacher: Tensor, mask: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """KL(softmax(t/T) ‖ softmax(s/T)) divided by each list's length, summed over queries.

    What averaging over all elements of (queries, passages) gives, the default of torch's and Paddle's KL: OpenMatch
    (T = 1). Its weight beside another loss depends on the list's length. At T = 1 it is `reference`.
    """
    return sum_list_means(
        compute_divergence(teacher.detach() / temperature, student / temperature, mask), mask
    )


@distillation("kl_reverse")
def kl_reverse(
    student: Tensor, teacher: Tensor, mask: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """KL(softmax(s/T) ‖ softmax(t/T)), summed over each list and over queries.

    The direction of RocketQAv2 Eq. 4: at T = 1 it has the value of `paper`, and no gradient for the teacher.
    """
    return compute_divergence(student / temperature, teacher.detach() / temperature, mask).sum()


@distillation("kl_minmax")
def kl_minmax(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """`kl` with the student's scores first scaled to [0, 1] over each list: (s - min s) / (max s - min s).

    pylate's `Distillation` by default. The student's softmax then spans at most a factor of e, so the teacher's scores
    should be of that range too.

    Args and returns: as `kl`, without a temperature.
    """
    highest = student.masked_fill(~mask, float("-inf")).amax(-1, keepdim=True)
    lowest = student.masked_fill(~mask, float("inf")).amin(-1, keepdim=True)
    span = (highest - lowest).clamp(min=1e-8)
    return kl((student - lowest) / span, teacher, mask)


@distillation("mse")
@teaches_scale
def mse(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """(s(q,p) - t(q,p))², averaged over each query's passages, summed over queries.

    Regression on the teacher's logits (Ba & Caruana 2014); sentence-transformers' `MSELoss` of a cross-encoder. Unlike
    Margin-MSE it fixes the scores' origin too, which a student of another range cannot reach.

    Args:
        student: s(q, p), shape (queries, passages).
        teacher: t(q, p) in the unit that the student shall learn, no gradient, same shape.
        mask: True where a passage stands, same shape.
    Returns:
        Scalar, in squared units of the scores.

    >>> mse(torch.tensor([[1.0, 4.0]]), torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)).item()  # (1² + 4²) / 2
    8.5
    """
    errors = (student - teacher.detach()).masked_fill(~mask, 0.0)
    return sum_list_means(errors.square(), mask)


@distillation("mse_probability")
def mse_probability(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """(s(q,p) - σ(t(q,p)))², averaged over each query's passages, summed over queries.

    Augmented SBERT (Thakur et al. 2021), where s is a cosine and t a cross-encoder's logit, learned by `pointwise`.

    Args and returns: as `mse`, the teacher in logits and the student in the unit of a probability.
    """
    return mse(student, teacher.detach().sigmoid(), mask)


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
    order = (
        teacher.detach()
        .masked_fill(~mask, float("-inf"))
        .argsort(dim=-1, descending=True, stable=True)
    )
    is_passage = mask.gather(1, order)
    scores = student.gather(1, order).masked_fill(~is_passage, torch.finfo(student.dtype).min)
    # log Σ_{k ≥ i} e^{s_π(k)}: a running sum from the end of the list.
    remaining = scores.flip(-1).logcumsumexp(-1).flip(-1)
    return (remaining - scores).masked_fill(~is_passage, 0.0).sum()
