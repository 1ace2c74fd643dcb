"""Binary cross-entropy of each (query, passage) pair."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def pointwise(scores: Tensor, mask: Tensor) -> Tensor:
    """-log σ(s(q,p+)) - Σ_{p-} log(1 - σ(s(q,p-))), averaged over each query's passages, summed over queries.

    The cross-encoder's loss of RocketQA and the DuReader-retrieval baseline. They use a softmax over two outputs; one
    output s = s_1 - s_0 with a sigmoid is the same function.

    Args:
        scores: logits of relevance with the positive first, shape (queries, passages).
        mask: True where a passage counts, same shape.
    Returns:
        Scalar, in nats.
    """
    sign = torch.full_like(scores, -1.0)
    sign[:, 0] = 1.0
    losses = -logsigmoid(sign * scores).masked_fill(~mask, 0.0)
    return (losses.sum(-1) / mask.sum(-1)).sum()
