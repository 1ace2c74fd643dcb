"""Score texts by their tokens' vectors: Σ_i max_j q_i · p_j."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tandem.contrib.late_interaction.same_token import join_digits

PRODUCTS_PER_BLOCK = 1 << 24  # products of tokens that are in memory at once


def compute_max_sim(queries: Tensor, passages: Tensor, same_token: bool = False) -> Tensor:
    """Return Σ_i max_j q_i · p_j over a query's and a passage's tokens, in blocks of passages to bound memory.

    For fp16 vectors of at most length 1, every float64 sum is exact and so the same in any order: products are
    multiples of 2^-48, and a sum of up to 32 of them, which is below 32, takes 53 bits.

    Args:
        queries: shape (queries, tokens, dim).
        passages: shape (passages, tokens, dim) to score every query with all passages, or (queries, list, tokens, dim)
            to score each query with its list. Rows of zeros are not tokens.
        same_token: take the maximum only over the passage's tokens j that equal token i; it is 0 if there are none.
            Rows then end with ids (see `join_digits`).
    Returns:
        Shape (queries, passages) or (queries, list).
    """
    axis = passages.dim() - 3
    of_one = queries.shape[0] * queries.shape[1] * passages.shape[-2]
    blocks = passages.split(max(1, PRODUCTS_PER_BLOCK // max(1, of_one)), axis)
    if torch.is_grad_enabled() and len(blocks) > 1:  # recompute products instead of keeping them
        parts = [
            checkpoint(_compute_block, queries, block, same_token, use_reentrant=False)
            for block in blocks
        ]
        return torch.cat(parts, 1)
    return torch.cat([_compute_block(queries, block, same_token) for block in blocks], 1)


def _compute_block(queries: Tensor, passages: Tensor, same_token: bool) -> Tensor:
    formula = "qid,pjd->qpij" if passages.dim() == 3 else "qid,qpjd->qpij"
    is_token = passages.detach().any(-1)[..., None, :]
    if not same_token:
        return (
            torch.einsum(formula, queries, passages)
            .masked_fill(~is_token, -torch.inf)
            .amax(-1)
            .sum(-1)
        )
    query_ids = join_digits(queries.detach())
    passage_ids = join_digits(passages.detach())
    matches = is_token & (query_ids[:, None, :, None] == passage_ids[..., None, :])
    products = torch.einsum(formula, queries[..., :-2], passages[..., :-2])
    nearest = products.masked_fill(~matches, -torch.inf).amax(-1)
    return nearest.masked_fill(~matches.any(-1), 0.0).sum(-1)
