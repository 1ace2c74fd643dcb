"""Validation while training: how well the model ranks dev queries' lists, cheap enough to ask often.

A list is the top of a reference run plus the query's known positives, so the value compares steps of one training; it
is not the measure of a table.
"""

from dataclasses import dataclass

import numpy as np
import torch

from tandem.models.ragged import Ids
from tandem.training.distributed import ALONE, World
from tandem.training.forward import split
from tandem.training.lists import Batch
from tandem.training.objectives import Objective

CUT = 10


@dataclass(frozen=True)
class Validation:
    """Dev lists.

    Attributes:
        batch: the lists, in the order of the reference run.
        relevant: whether each passage is relevant, shape (queries, list).
    """

    batch: Batch
    relevant: Ids


def reciprocal_rank(scores: Ids, relevant: Ids, mask: Ids) -> float:
    """RR@10 of re-ranked lists, averaged over queries; of equal scores the earlier one stands first.

    Args:
        scores: shape (queries, list).
        relevant: same shape, bool.
        mask: True where a passage stands, same shape.
    """
    order = np.argsort(np.where(mask, -scores, np.inf), axis=1, kind="stable")[:, :CUT]
    hits = np.take_along_axis(relevant & mask, order, 1)
    first = hits.argmax(1)
    return float(np.where(hits.any(1), 1.0 / (first + 1), 0.0).mean())


def validate(
    objective: Objective, validation: Validation, tokens_per_part: int, world: World = ALONE
) -> dict[str, float]:
    """RR@10 of each model part on the dev lists, by part; each process ranks a share of them."""
    count = len(validation.batch.queries)
    own = world.slice(count)
    values = dict.fromkeys(objective.models, 0.0)
    if own.start < own.stop:
        values = ranked(objective, Validation(world.share(validation.batch), validation.relevant[own]), tokens_per_part)
    return world.total({name: value * ((own.stop - own.start) / max(count, 1)) for name, value in values.items()})


def ranked(objective: Objective, validation: Validation, tokens_per_part: int) -> dict[str, float]:
    """RR@10 of each model part on some lists."""
    objective.models.eval()
    scores: dict[str, list[Ids]] = {}
    for part in split(validation.batch, objective.tokens, tokens_per_part):
        with torch.no_grad():
            for name, values in objective.scores(part).items():
                scores.setdefault(name, []).append(values.float().cpu().numpy())
    mask = validation.batch.mask
    return {name: reciprocal_rank(np.concatenate(s), validation.relevant, mask) for name, s in scores.items()}
