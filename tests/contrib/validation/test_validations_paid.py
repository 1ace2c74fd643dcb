"""How many validations a budget of minutes pays for, and what one costs, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from pytest import approx
from tiny_training import objective

from tandem.contrib.validation.within import count_validation_operations
from tandem.extras.training_budgets import OPERATIONS_PER_SECOND, fit_validations
from tandem.extras.training_operations import count_layer_weights
from tandem.extras.validation.validation_sets import ValidationSet
from tandem.training.lists import Batch


@pytest.mark.parametrize(
    ("each", "count", "left"),
    [
        (0.1, 10, 12 - 11 * 0.1),  # as usual
        (1.0, 3, 12 - 4 * 1.0),  # a third of twelve minutes is four: the start's and three more
        (2.5, 1, 12 - 2 * 2.5),
        (4.0, 1, 12 / 2),  # start and end take eight minutes: two of them come on top
        (0.0, 10, 12),
    ],
)
def test_a_third_of_a_budget_decides_how_often_a_training_validates(each, count, left):
    assert fit_validations(12, each * 60 * OPERATIONS_PER_SECOND) == (count, approx(left))


def test_a_validation_costs_a_forward_pass_of_the_pool_or_of_the_pairs():
    lists = np.array([[3, 5, 7], [5, 9, -1]])
    validation = ValidationSet(Batch(np.array([0, 1]), lists), [{3: 1}, {11: 1}], "two queries")
    learner = objective("cross")
    query, passage = (
        learner.tokens.queries.lengths(np.arange(2)),
        learner.tokens.passages.lengths(np.arange(12)),
    )
    pairs = passage[[3, 5, 7]].sum() + passage[[5, 9]].sum() + 3 * query[0] + 2 * query[1] + 5 * 3
    expected = 2 * count_layer_weights(learner.models["cross"]) * pairs
    assert count_validation_operations(learner.models, learner.tokens, validation) == expected
    learner = objective("dual")
    texts = passage[[3, 5, 7, 9, 11]].sum() + query.sum() + 7 * 2
    expected = 2 * count_layer_weights(learner.models["dual"]) * texts
    assert count_validation_operations(learner.models, learner.tokens, validation) == expected


def test_a_pair_that_is_cut_costs_what_is_left_of_it():
    validation = ValidationSet(Batch(np.array([0, 1]), np.array([[3], [5]])), [{3: 1}, {5: 1}], "")
    learner = objective("cross")
    short = replace(learner.tokens, template=replace(learner.tokens.template, longest_pair=7))
    passages = learner.tokens.passages.lengths(np.array([3, 5]))
    # with three special ones both pairs have more than seven tokens
    assert (learner.tokens.queries.lengths(np.arange(2)) + passages + 3 > 7).all()
    expected = 2 * count_layer_weights(learner.models["cross"]) * 2 * 7
    assert count_validation_operations(learner.models, short, validation) == expected
