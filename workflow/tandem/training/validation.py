"""Validation while training: how well the model ranks dev queries' lists, cheap enough to compute often.

A list is the top of a reference run plus the query's known positives, so the value compares steps of one training; it
is not the measure of a table.
"""

from dataclasses import dataclass

import numpy as np
import torch

from tandem.data.collection import Collection
from tandem.data.rows import IdRows
from tandem.data.runs import iter_run
from tandem.models.ragged import Ids
from tandem.store.artifact import Artifact
from tandem.training.distributed import ALONE, World
from tandem.training.forward import split
from tandem.training.lists import Batch
from tandem.training.objectives import Objective

CUT = 10


@dataclass(frozen=True)
class Validation:
    """Dev lists.

    Attributes:
        relevant: whether each passage is relevant, shape (queries, list).
    """

    batch: Batch
    relevant: Ids


def read_validation(
    collection: Collection, run: Artifact, rows: IdRows, queries: IdRows, count: int, depth: int
) -> Validation:
    """Lists for validation: the top `depth` of the run for the first `count` dev queries, and their positives."""
    qrels = collection.qrels("dev")
    lists: list[tuple[str, list[str], set[str]]] = []
    for query, docs, _ in iter_run(run.path("run.trec")):
        relevant = {d for d, relevance in qrels.get(query, {}).items() if relevance > 0}
        if relevant and len(lists) < count:
            top = docs[:depth]
            lists.append((query, [*top, *sorted(relevant - set(top))], relevant))
    width = max((len(docs) for _, docs, _ in lists), default=1)
    passages = np.full((len(lists), width), -1, np.int64)
    relevant_at = np.zeros_like(passages, bool)
    for i, (_, docs, relevant) in enumerate(lists):
        passages[i, : len(docs)] = rows.rows(docs, missing_ok=True)
        relevant_at[i, : len(docs)] = [d in relevant for d in docs]
    return Validation(Batch(queries.rows([q for q, _, _ in lists]), passages), relevant_at)


def validate(
    objective: Objective, validation: Validation, tokens_per_part: int, world: World = ALONE
) -> dict[str, float]:
    """RR@10 of each model part on the dev lists, by part; each process ranks a share of them."""
    count = len(validation.batch.queries)
    own = world.slice(count)
    values = dict.fromkeys(objective.models, 0.0)
    if own.start < own.stop:
        share = Validation(world.share(validation.batch), validation.relevant[own])
        values = rank_lists(objective, share, tokens_per_part)
    return world.total({name: value * ((own.stop - own.start) / max(count, 1)) for name, value in values.items()})


def rank_lists(objective: Objective, validation: Validation, tokens_per_part: int) -> dict[str, float]:
    """RR@10 of each model part on some lists."""
    objective.models.eval()
    scores: dict[str, list[Ids]] = {}
    for part in split(validation.batch, objective.tokens, tokens_per_part):
        with torch.no_grad():
            for name, values in objective.scores(part).items():
                scores.setdefault(name, []).append(values.float().cpu().numpy())
    mask = validation.batch.mask
    return {name: reciprocal_rank(np.concatenate(s), validation.relevant, mask) for name, s in scores.items()}


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
