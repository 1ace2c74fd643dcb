"""Sizes and steps of a training that follow from the data, the encoder and a budget of minutes."""

import math
from typing import TypeVar

from torch import nn

from tandem.config.training import Train
from tandem.extras.training_budgets import OPERATIONS_PER_SECOND, fit_steps
from tandem.extras.training_operations import (
    count_layer_weights,
    count_step_operations,
    count_visited,
)
from tandem.models.tokens import Tokens
from tandem.training.instances import Instances
from tandem.training.lists import Lists
from tandem.training.objectives import Objective

_Train = TypeVar("_Train", bound=Train)
# Sizes that follow from the data.
_SHORTEST_LIST = 2  # passages
_LONGEST_LIST = 8
_VISITS_OF_A_POSITIVE = 2  # a budget pays for these visits before lists grow
_QUERIES_PER_STEP = 32  # of dual encoders, for which other queries' passages are negatives
_PASSAGES_PER_STEP = 32  # of all other models
# The learning rates (for a single encoder, those of the embedded default), and the numbers of steps and of weights in
# an encoder's layers up to which they hold. No key contains them: if they changed, a different model would get the same
# name.
_LEARNING_RATES = {"dual": 1e-4, "cross": 1.5e-4, "joint": 5e-5}
_STEPS_OF_THE_RATES = 400
WEIGHTS_OF_THE_RATES = 10.6e6


def fit_to_budget(learned: str, objective: Objective, lists: Lists, train: _Train) -> _Train:
    """Return a training with the steps that its budget allows and, with `sizes: data`, with sizes from the data."""
    models, tokens = objective.models, objective.tokens
    if train.sizes == "data":
        train = fit_sizes(learned, models, tokens, lists, train)
    if train.budget_minutes is None:
        return train
    operations = count_step_operations(models, tokens, lists, train)
    instances = len(Instances.of(lists, train))
    steps = fit_steps(train.budget_minutes, operations, instances, train.queries_per_batch)
    return train.model_copy(update={"steps": steps})


def fit_sizes(
    objective: str, models: nn.ModuleDict, tokens: Tokens, lists: Lists, train: _Train
) -> _Train:
    """Return the training with `list_size`, `queries_per_batch` and `lr` from data, encoder and `budget_minutes`.

    Lists are as long as the budget allows with two visits of every positive, and no longer than they were drawn. The
    learning rate falls with the square root of steps and weights. `objective` is `dual`, `cross` or `joint`.
    """
    minutes = train.budget_minutes or 0.0
    shortest = train.model_copy(
        update={"queries_per_batch": 1, "list_size": _SHORTEST_LIST, "positives": 1}
    )
    operations_of_a_list = count_step_operations(models, tokens, lists, shortest)
    lists_within = minutes * 60 * OPERATIONS_PER_SECOND / operations_of_a_list
    visits = _VISITS_OF_A_POSITIVE * int(lists.positives.sum())
    passages_of_a_visit = _SHORTEST_LIST * lists_within / visits
    positives, negatives = count_visited(lists, _LONGEST_LIST, train.positives)
    longest = int((positives + negatives).max())
    size = int(min(max(passages_of_a_visit, _SHORTEST_LIST), longest))

    sized = train.model_copy(
        update={"list_size": size, "positives": min(train.positives, size - 1)}
    )
    queries = _QUERIES_PER_STEP if objective == "dual" else _PASSAGES_PER_STEP // sized.visit_size
    sized = sized.model_copy(update={"queries_per_batch": queries})

    operations = count_step_operations(models, tokens, lists, sized)
    steps = fit_steps(minutes, operations, len(Instances.of(lists, sized)), queries)
    largest = max(count_layer_weights(model) for model in models.values())
    shrink = min(1.0, _STEPS_OF_THE_RATES / steps) * min(1.0, WEIGHTS_OF_THE_RATES / largest)
    lr = _LEARNING_RATES[objective] * math.sqrt(shrink)
    return sized.model_copy(update={"lr": float(f"{lr:.1e}")})
