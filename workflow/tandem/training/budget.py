"""What steps and validations cost, by which a budget of minutes is spent, and sizes that follow from data and budget.

All of it is decided by the data and the encoder: no clock is read, and no machine asked.
"""

import math
from typing import TypeVar

import numpy as np
from torch import nn

from tandem.config.training import Train
from tandem.models.tokens import Tokens
from tandem.training.instances import Instances
from tandem.training.lists import RATE, Lists, steps_within, visit_sizes
from tandem.training.validation import Validation

T = TypeVar("T", bound=Train)
OPERATIONS = 6  # per weight and token: 2 of a forward pass, 4 of a backward pass …
FORWARD = 2
BACKWARD = 4 / OPERATIONS  # … which frozen layers have none of

SHORTEST, LONGEST = 2, 8  # passages of a list
VISITS = 2  # of every positive, which a budget is spent on before lists grow
QUERIES, PASSAGES = 32, 32  # of a step: of dual encoders, whose other queries are negatives, and of all others
RATES = {"dual": 1e-4, "cross": 1.5e-4, "joint": 5e-5}  # the embedded default's learning rates, for …
STEPS, WEIGHTS = 400, 10.6e6  # … up to so many steps of an encoder with so many weights in its layers


def data_sizes(objective: str, models: nn.ModuleDict, tokens: Tokens, lists: Lists, train: T) -> T:
    """The training with `list_size`, `queries_per_batch` and `lr` from the data, the encoder and `budget_minutes`.

    Lists are as long as the budget allows with two visits of every positive; the learning rate falls with the square
    root of steps and weights.

    Args:
        objective: `dual`, `cross` or `joint`.
    """
    minutes = train.budget_minutes or 0.0
    short = train.model_copy(update={"queries_per_batch": 1, "list_size": SHORTEST, "positives": 1})
    passages = SHORTEST * minutes * 60 * RATE / operations_per_step(models, tokens, lists, short)
    size = int(min(max(passages / (VISITS * int(lists.positives.sum())), SHORTEST), LONGEST))
    queries = QUERIES if objective == "dual" else PASSAGES // size
    changes = {"list_size": size, "queries_per_batch": queries, "positives": min(train.positives, size - 1)}
    sized = train.model_copy(update=changes)
    instances = len(Instances.of(lists, sized))
    steps = steps_within(minutes, operations_per_step(models, tokens, lists, sized), instances, queries)
    largest = max(layer_weights(model) for model in models.values())
    lr = RATES[objective] * math.sqrt(min(1.0, STEPS / steps) * min(1.0, WEIGHTS / largest))
    return sized.model_copy(update={"lr": float(f"{lr:.1e}")})


def operations_per_step(models: nn.ModuleDict, tokens: Tokens, lists: Lists, train: Train) -> float:
    """Operations of a step over lists of mean size and texts of mean length; what attention adds is left out."""
    passage = float(tokens.passages.lengths(lists.passages).mean())
    query = float(tokens.queries.lengths(lists.queries).mean())
    single, pair = tokens.template.extra
    positives, negatives = visit_sizes(lists, train.visit_size, train.positives)
    size = float((positives + negatives).mean())
    both = passage + query + pair - _cut(tokens, lists)
    of_list = {"dual": size * (passage + single) + query + single, "cross": size * both}
    weights: dict[str, float] = {part: layer_weights(model) for part, model in models.items()}
    if train.freeze_layers:
        weights = {part: weights[part] - BACKWARD * layer_weights(model, frozen=True) for part, model in models.items()}
    return OPERATIONS * train.queries_per_batch * sum(weights[part] * of_list[part] for part in weights)


def operations_per_validation(models: nn.ModuleDict, tokens: Tokens, validation: Validation) -> float:
    """Operations of one validation: a forward pass of a dual encoder's queries and pool, of a cross-encoder's pairs."""
    (single, pair), batch, pool = tokens.template.extra, validation.batch, validation.pool
    queries, passages = tokens.queries.lengths(batch.queries), tokens.passages.lengths(np.maximum(batch.passages, 0))
    read = {
        "dual": (tokens.passages.lengths(pool) + single).sum() + (queries + single).sum(),
        "cross": np.where(batch.mask, passages + queries[:, None] + pair, 0).sum(),
    }
    return FORWARD * sum(layer_weights(model) * float(read[part]) for part, model in models.items())


def _cut(tokens: Tokens, lists: Lists) -> float:
    """The tokens that a pair loses to the template's `longest_pair`, on average."""
    if tokens.template.longest_pair is None:
        return 0.0
    queries, passages = lists.pairs(0, len(lists.passages))
    lengths = tokens.queries.lengths(queries), tokens.passages.lengths(passages)
    return float((sum(lengths) + tokens.template.extra[1] - tokens.template.pair_lengths(*lengths)).mean())


def layer_weights(model: nn.Module, frozen: bool = False) -> int:
    """Weights of the encoders that a passage goes through, without their embeddings, which only look rows up.

    With `frozen` those of them that do not learn.
    """
    towers = getattr(model, "towers", {"passage": model})
    encoders = [encoder for side, encoder in towers.items() if side != "query"]
    named = (pair for encoder in encoders for pair in encoder.named_parameters())
    return sum(w.numel() for name, w in named if "embeddings" not in name and not (frozen and w.requires_grad))
