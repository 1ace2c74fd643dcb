"""KL divergences from a teacher's scores of a list; their names state direction, temperature and reduction."""

from torch import Tensor

from tandem.config.losses import distillation
from tandem.training.losses.listwise import compute_divergence, sum_list_means

# least span of a list's scores that `kl_minmax` scales: a smaller one is rounding
_LEAST_SPAN = 1e-4


@distillation("kl")
def kl(student: Tensor, teacher: Tensor, mask: Tensor, *, temperature: float = 1.0) -> Tensor:
    """KL(softmax(t/T) ‖ softmax(s/T)), summed over each list and over queries: torch's `batchmean`.

    lightning-ir and ColBERT (T = 1) and tevatron (T, without the factor T²) compute it. Its gradient is that of
    ListNet's top-one cross-entropy (Cao et al. 2007), which is this plus the teacher's entropy.

    Args:
        student: s(q, p), shape (queries, passages).
        teacher: t(q, p), any scale, no gradient, same shape.
        mask: True for passages, False for padding, same shape.
        temperature: T, of both sides.
    Returns:
        Scalar, in nats.
    """
    return compute_divergence(teacher.detach() / temperature, student / temperature, mask).sum()


@distillation("kl_t2")
def kl_t2(student: Tensor, teacher: Tensor, mask: Tensor, *, temperature: float = 1.0) -> Tensor:
    """T² KL(softmax(t/T) ‖ softmax(s/T)), summed over each list and over queries.

    Hinton et al. 2015 §2: a softmax at T divides gradients by about T², which the factor makes up for, so that the
    weight relative to a supervised loss need not change with T. It is sentence-transformers' `DistillKLDivLoss`.
    """
    return temperature**2 * kl(student, teacher, mask, temperature=temperature)


@distillation("kl_elementwise")
def kl_elementwise(
    student: Tensor, teacher: Tensor, mask: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """KL(softmax(t/T) ‖ softmax(s/T)) divided by each list's length, summed over queries.

    This is the average over all elements of (queries, passages), the default of torch's and Paddle's KL; OpenMatch uses
    it (T = 1). Its weight relative to another loss depends on the list's length. At T = 1 it is `reference`.
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

    This is pylate's `Distillation` by default. The student's softmax then spans at most a factor of e, so the teacher's
    scores should have that range, too. The gradient grows with 1 / (max s - min s): a list whose scores are all but
    equal, with a span below 1e-4, is left out, while pylate would take a step of any size.

    Args and returns: as `kl`, without a temperature.
    """
    highest = student.masked_fill(~mask, float("-inf")).amax(-1, keepdim=True)
    lowest = student.masked_fill(~mask, float("inf")).amin(-1, keepdim=True)
    span = highest - lowest
    is_spread = span > _LEAST_SPAN
    scaled = (student - lowest) / span.where(is_spread, 1.0)
    return compute_divergence(teacher.detach(), scaled, mask).masked_fill(~is_spread, 0.0).sum()
