"""The contrastive loss of spans: two spans of one passage belong together."""

from torch import Tensor, nn


def span_contrast(scores: Tensor, places: Tensor, passages: Tensor) -> Tensor:
    """-log( e^{⟨h, h'⟩} / Σ_{k≠h} e^{⟨h, h_k⟩} ), h' being the other span of h's passage.

    coCondenser's loss (Gao & Callan 2022 §3.2): every other span of the batch is a negative. A passage that stands in
    the batch twice is no negative of itself.

    Args:
        scores: ⟨h, h_k⟩ of some spans (rows) against all of the batch, shape (spans, all spans); spans 2i and 2i + 1
            are of the batch's passage i.
        places: where the rows stand among all spans, shape (spans,).
        passages: which passage each of all spans is cut from, shape (all spans,).
    Returns:
        Shape (spans,), in nats.
    """
    partner = places ^ 1
    same = passages[places][:, None] == passages[None, :]
    same.scatter_(1, partner[:, None], False)
    return nn.functional.cross_entropy(scores.masked_fill(same, float("-inf")), partner, reduction="none")
