"""Losses on a teacher's scores: KL's variants, Margin-MSE, MSE; and the regularisers."""

import math

import pytest
import torch
from pydantic import ValidationError
from pytest import approx

from tandem.config.losses import VectorWeights, regulariser
from tandem.contrib.losses.divergences import kl, kl_elementwise, kl_minmax, kl_reverse, kl_t2
from tandem.contrib.losses.regression import margin_mse, mse, mse_probability
from tandem.contrib.losses.regularisers import flops, l1
from tandem.contrib.losses.vector_terms import ramp_up
from tandem.training.losses.listwise import (
    dynamic_listwise_distillation,
    reference_listwise_distillation,
)

LN3 = math.log(3)
FORWARD = 0.5 * math.log(4 / 3)  # KL((1/2, 1/2) ‖ (1/4, 3/4)) = 1/2 ln 2 + 1/2 ln 2/3
BACKWARD = 0.25 * math.log(1 / 2) + 0.75 * math.log(3 / 2)


def of(loss, *lists, **options):
    """A loss of one query's list, without padding."""
    rows = [torch.tensor([row], dtype=torch.float64) for row in lists]
    return loss(*rows, torch.ones_like(rows[0], dtype=torch.bool), **options).item()


def test_each_kl_by_hand():
    # the student's softmax(0, ln 3) is (1/4, 3/4), and so is softmax((0, 2 ln 3) / 2); the teacher's is (1/2, 1/2)
    student, warm, teacher = [0.0, LN3], [0.0, 2 * LN3], [1.0, 1.0]
    assert of(kl, student, teacher) == approx(FORWARD)
    assert of(kl, warm, teacher, temperature=2.0) == approx(FORWARD)
    assert of(kl_t2, warm, teacher, temperature=2.0) == approx(4 * FORWARD)
    assert of(kl_elementwise, warm, teacher, temperature=2.0) == approx(FORWARD / 2)
    assert of(kl_reverse, warm, teacher, temperature=2.0) == approx(BACKWARD)


def test_kl_minmax_by_hand():
    # the student's (3, 10) become (0, 1), with the softmax (1, e) / (1 + e)
    expected = 0.5 * math.log((1 + math.e) / 2) + 0.5 * math.log((1 + math.e) / (2 * math.e))
    assert of(kl_minmax, [3.0, 10.0], [1.0, 1.0]) == approx(expected)
    assert of(kl_minmax, [3.0, 10.0], [4.0, 5.0]) == approx(0, abs=1e-12)


def test_kl_minmax_leaves_a_list_of_equal_scores_out():
    """Its span is 0, or that of rounding; the other list's loss and gradient are as without it."""
    student = torch.tensor([[3.0, 10.0], [20.0, 20.0], [20.0, 20.00001]], requires_grad=True)
    teacher = torch.tensor([[1.0, 1.0], [3.0, 1.0], [3.0, 1.0]])
    loss = kl_minmax(student, teacher, torch.ones_like(teacher, dtype=torch.bool))
    loss.backward()
    assert loss.item() == approx(of(kl_minmax, [3.0, 10.0], [1.0, 1.0]))
    assert student.grad[1:].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert student.grad.isfinite().all()


def test_variants_are_the_papers_and_the_codes_where_they_should_be():
    student, teacher = [0.3, -1.2, 2.0], [1.1, 0.2, 0.1]
    assert of(kl_elementwise, student, teacher) == approx(
        of(reference_listwise_distillation, student, teacher)
    )
    assert of(kl_reverse, student, teacher) == approx(
        of(dynamic_listwise_distillation, student, teacher)
    )
    assert of(kl, student, teacher) != approx(of(kl_reverse, student, teacher), rel=0.01)


@pytest.mark.parametrize("loss", [kl, kl_t2, kl_elementwise, kl_reverse])
def test_kl_is_zero_where_scores_differ_by_a_constant_and_only_there(loss):
    teacher = [0.5, -1.0, 2.0]
    assert of(loss, [t - 7 for t in teacher], teacher, temperature=3.0) == approx(0, abs=1e-12)
    assert of(loss, [2 * t for t in teacher], teacher, temperature=3.0) > 1e-3


def test_temperature_scales_scores_and_t2_keeps_the_gradients_size():
    student = torch.tensor([[0.5, -1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    teacher, mask = (
        torch.tensor([[1.0, 0.0, -1.0]], dtype=torch.float64),
        torch.ones(1, 3, dtype=torch.bool),
    )
    warm = torch.autograd.grad(kl_t2(student, teacher, mask, temperature=1e4), student)[0]
    # Hinton et al. 2015, Eq. 4: at a high temperature the gradient is the difference of the centred scores over n
    centred = (student - student.mean() - (teacher - teacher.mean())) / 3
    torch.testing.assert_close(warm, centred.detach(), rtol=1e-3, atol=1e-6)
    plain = torch.autograd.grad(kl(student, teacher, mask, temperature=1e4), student)[0]
    torch.testing.assert_close(plain * 1e8, warm)


def test_margin_mse_by_hand():
    # the student's margins are 2 and 3, the teacher's 1 and 3: (1² + 0²) / 2
    assert of(margin_mse, [3.0, 1.0, 0.0], [1.0, 0.0, -2.0]) == approx(0.5)


def test_mse_of_probabilities_by_hand():
    # the teacher's logits ln 3 and 0 are the probabilities 3/4 and 1/2: (1/4² + 1/2²) / 2
    assert of(mse_probability, [1.0, 0.0], [LN3, 0.0]) == approx(5 / 32)


def test_mse_by_hand():
    assert of(mse, [3.0, 1.0, 0.0], [1.0, 0.0, -2.0]) == approx((4 + 1 + 4) / 3)


def test_margin_mse_does_not_see_the_origin_of_the_teachers_scores():
    student, teacher = [3.0, 1.0, 0.0], [1.0, 0.5, -2.0]
    moved = [t + 10 for t in teacher]
    assert of(margin_mse, student, moved) == approx(of(margin_mse, student, teacher))
    assert of(mse, student, moved) > of(mse, student, teacher)


def test_margin_mse_without_a_positives_score_teaches_nothing():
    mask = torch.tensor([[False, True, True]])
    assert margin_mse(torch.tensor([[1.0, 2.0, 3.0]]), torch.zeros(1, 3), mask).item() == 0


def test_regularisers_by_hand():
    # mean activations (1 + 3)/2 = 2 and (2 + 0)/2 = 1; L1 norms 3 and 3
    vectors = torch.tensor([[1.0, -2.0], [3.0, 0.0]])
    assert flops(vectors).item() == 2**2 + 1**2
    assert l1(vectors).item() == 3


def test_flops_prefers_activations_spread_over_dimensions():
    # the same L1 norm: one dimension that both texts use costs (1)² = 1, one each (1/2)² + (1/2)² = 1/2
    same, distinct = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.eye(2)
    assert (flops(same).item(), flops(distinct).item()) == (1.0, 0.5)
    assert l1(same) == l1(distinct)


def test_a_weight_grows_quadratically_and_then_stays():
    assert [ramp_up(step, 4) for step in range(6)] == [1 / 16, 4 / 16, 9 / 16, 1, 1, 1]
    assert ramp_up(0, 0) == 1


def test_without_the_package_its_regularisers_are_refused(monkeypatch):
    assert VectorWeights(flops=0.1).flops == 0.1
    monkeypatch.setattr(regulariser, "own_sources", {})
    monkeypatch.setattr(regulariser, "_entries", {})
    with pytest.raises(ValidationError, match="flops: nothing computes it"):
        VectorWeights(flops=0.1)
