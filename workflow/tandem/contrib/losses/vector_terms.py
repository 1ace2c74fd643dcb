"""Add terms to the loss of a dual encoder's lists: PAIR's passage-centric loss, regularisers of vectors."""

import torch
from torch import Tensor

from tandem.config.losses import Regularise, regulariser
from tandem.config.training import DualTrain
from tandem.training.forward import score_own_lists
from tandem.training.losses.listwise import listwise
from tandem.training.objectives.dual import InBatch


def add_passage_centric(
    train: DualTrain, state: InBatch, terms: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return PAIR's L = (1 - α) L_Q + α L_P, with α = `passage_centric` and L_Q the other terms."""
    alpha = train.passage_centric
    blended = {name: (1 - alpha) * term for name, term in terms.items()}
    return {**blended, "passage": alpha * compare_queries(state)}


def add_regularisers(
    train: DualTrain, state: InBatch, terms: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return the terms and, as a further one, λ times the regularisers of each side's vectors."""
    if train.regularise is None:
        return terms
    return {**terms, "regularise": sum_regularisers(train.regularise, state)}


def compare_queries(state: InBatch) -> Tensor:
    """-log( e^{s(p+,q)} / (e^{s(p+,q)} + Σ_{p-} e^{s(p+,p-)}) ), in nats, summed over queries.

    L_P of PAIR (Ren et al. 2021): the positive is nearer to its query than to the negatives. The negatives p- are those
    of L_Q here: the list's own and, in batch, those of the other lists' passages that are not known positives of the
    query. PAIR's code compares the positive with negative passages and the batch's queries, with one encoder for both
    sides.
    """
    positives = state.own_positives
    among = score_own_lists(state.score, positives, state.own_passages, state.batch)
    scores = torch.cat([state.own[:, :1], among[:, 1:]], 1)
    if state.scores.shape[1] > scores.shape[1]:
        scores = torch.cat([scores, state.score(positives, state.passages)], 1)
    return listwise(scores, state.mask)


def sum_regularisers(params: Regularise, state: InBatch) -> Tensor:
    """Σ λ R(vectors) over both sides and their regularisers, over the batch's texts of all processes.

    A regulariser is not a sum over queries. It is multiplied by this process' number of queries, so that it counts once
    after the caller has divided by the batch's number of queries and summed over processes. A passage that is in two
    lists counts twice. `params` has each side's weights λ by the regulariser's name, and the number of steps over which
    they grow.
    """
    total = state.queries.new_zeros(())
    for side, side_weights in (("query", params.query), ("passage", params.passage)):
        weights = {name: weight for name, weight in side_weights or () if weight}
        if weights:
            vectors = state.passages if side == "passage" else state.gather(state.queries)
            values = [weight * regulariser[name](vectors) for name, weight in weights.items()]
            total = total + torch.stack(values).sum()
    return total * ramp_up(state.step, params.ramp) * len(state.batch.queries)


def ramp_up(step: int, steps: int) -> float:
    """Return min(1, (t / steps)²), t = step + 1: how a regulariser's weight grows in SPLADE; 1 for 0 steps.

    >>> ramp_up(4, 10)
    0.25
    """
    if not steps:
        return 1.0
    return min(1.0, ((step + 1) / steps) ** 2)
