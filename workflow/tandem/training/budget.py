"""What a step costs, by which a budget of minutes is spent, and sizes that follow from data and budget.

All of it is decided by the data and the encoder: no clock is read, and no machine asked.
"""

import math
from typing import TypeVar

from torch import nn

from tandem.config.training import Train
from tandem.models.tokens import Tokens
from tandem.training.lists import RATE, Lists, steps_within, visit_sizes

T = TypeVar("T", bound=Train)
OPERATIONS = 6  # per weight and token: 2 of a forward pass, 4 of a backward pass

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
    steps = steps_within(minutes, operations_per_step(models, tokens, lists, sized), len(lists), queries)
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
    of_list = {"dual": size * (passage + single) + query + single, "cross": size * (passage + query + pair)}
    weights = {part: layer_weights(model) for part, model in models.items()}
    return OPERATIONS * train.queries_per_batch * sum(weights[part] * of_list[part] for part in weights)


def layer_weights(model: nn.Module) -> int:
    """Weights of the one encoder that a text goes through, without its embeddings, which only look rows up."""
    towers = getattr(model, "towers", None)
    encoder = towers["passage"] if towers is not None else model
    return sum(weight.numel() for name, weight in encoder.named_parameters() if "embeddings" not in name)
