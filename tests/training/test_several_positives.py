"""Several positives in a list: each against the negatives alone, by hand, for every loss and every objective."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from pytest import approx
from tiny_training import BATCH, TRAINING, objective

from tandem.extras.training_operations import count_step_operations
from tandem.training.forward import Seeds
from tandem.training.instances import Instances, draw_list, iter_batches
from tandem.training.lists import Lists
from tandem.training.losses import average_over_positives
from tandem.training.losses.listwise import listwise, pointwise

# 3 + 2, 1 + 2 passages
LISTS = Lists(np.array([7, 9]), np.array([0, 5, 8]), np.array([3, 1]), np.arange(10, 18))


def test_two_positives_and_a_negative_by_hand():
    # against the negative alone: softmax(ln 3, 0) = (3/4, 1/4) and softmax(0, 0) = (1/2, 1/2)
    scores, mask = torch.tensor([[math.log(3), 0.0, 0.0]]), torch.ones(1, 3, dtype=torch.bool)
    expected = (math.log(4 / 3) + math.log(2)) / 2
    assert average_over_positives(listwise, scores, mask, np.array([2])).item() == approx(expected)


def test_lists_of_one_positive_are_as_without_counts_and_lists_add_up():
    scores = torch.tensor([[0.3, -0.2, 1.0, 0.5], [0.1, 0.9, -0.4, 0.0]])
    mask = torch.tensor([[True, True, True, True], [True, True, True, False]])
    for loss in (listwise, pointwise):
        whole = loss(scores, mask)
        assert average_over_positives(loss, scores, mask, None) == whole
        assert average_over_positives(loss, scores, mask, np.array([1, 1])).item() == approx(
            whole.item()
        )
        each = [
            loss(scores[:1], mask[:1]).item(),
            # the second list has two positives
            loss(scores[1:, [0, 2, 3]], mask[1:, [0, 2, 3]]).item() / 2,
            loss(scores[1:, 1:], mask[1:, 1:]).item() / 2,
        ]
        assert average_over_positives(loss, scores, mask, np.array([1, 2])).item() == approx(
            sum(each)
        )


def test_a_share_without_a_list_has_a_gradient():
    scores = torch.zeros(0, 3, requires_grad=True)
    average_over_positives(
        listwise, scores, torch.ones(0, 3, dtype=torch.bool), np.empty(0, np.int64)
    ).backward()
    assert scores.grad.shape == (0, 3)


def test_a_visit_draws_so_many_positives_anew_and_fills_up_with_negatives():
    visits = [draw_list(LISTS, 0, 4, seed=1, epoch=epoch, most=2).tolist() for epoch in range(30)]
    assert {tuple(sorted(visit[:2])) for visit in visits} == {(0, 1), (0, 2), (1, 2)}
    assert all(sorted(visit[2:]) == [3, 4] for visit in visits)
    assert sorted(draw_list(LISTS, 1, 4, seed=1, epoch=0, most=2).tolist()) == [-1, 5, 6, 7]
    [batch] = iter_batches(Instances(LISTS, 4, most=2), per_batch=2, seed=3, visits=2)
    assert dict(zip(batch.queries.tolist(), batch.positives.tolist(), strict=True)) == {7: 2, 9: 1}
    assert [batch.select([at]).positives.tolist() for at in (0, 1)] == [
        [count] for count in batch.positives
    ]
    [alone] = iter_batches(Instances(LISTS, 4), per_batch=2, seed=3, visits=2)
    assert alone.positives is None


@pytest.mark.parametrize("name", ["dual", "cross", "joint"])
def test_an_objective_s_loss_is_the_mean_over_its_positives(name):
    # Of a list (a, b, c, d) with positives a and b: half of that of (a, c, d), half of that of (b, c, d).
    learner = objective(name, dtype=torch.float64)
    first = BATCH.select(slice(1))

    def supervised(passages, counts=None):
        values = learner.backward(
            replace(first, passages=np.array([passages]), positives=counts), Seeds((1, 0))
        )
        return values.get("sup", values["loss"])

    a, b, c, d = BATCH.passages[0].tolist()
    together = supervised([a, b, c, d], np.array([2]))
    assert together == approx((supervised([a, c, d]) + supervised([b, c, d])) / 2)
    assert together != approx(supervised([a, b, c, d]))


def test_the_cost_of_a_step_counts_them():
    train = {"list_size": 4, "positives": 2, "queries_per_batch": 2, "in_batch": False}
    cross = TRAINING["cross"].model_validate(train)
    learner = objective("cross")
    costs = [
        count_step_operations(
            learner.models, learner.tokens, LISTS, cross.model_copy(update={"positives": most})
        )
        for most in (1, 2, 3)
    ]
    # 2 + 2 and 1 + 2 passages, instead of 1 + 2 and 1 + 2
    assert costs[1] / costs[0] == approx(3.5 / 3)
    assert costs[2] == approx(costs[1])  # 3 + 1 and 1 + 2
