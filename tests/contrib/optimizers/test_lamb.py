"""LAMB by hand."""

import math

import torch
from pytest import approx
from torch import nn

from tandem.contrib.optimizers.lamb import Lamb


def one_step(weights, gradient, **options):
    """The weights after a step of LAMB at rate 0.1."""
    parameter = nn.Parameter(torch.tensor(weights, dtype=torch.float64))
    parameter.grad = torch.tensor(gradient, dtype=torch.float64)
    Lamb([{"params": [parameter]}], lr=0.1, eps=0.0, **options).step()
    return parameter.tolist()


def test_lamb_s_first_step_by_hand():
    # m / (1 - β₁) = g and √(v / (1 - β₂)) = |g|: r = sign(g) = (1, -1), of norm √2; the weights' norm is 5
    assert one_step([3.0, 4.0], [0.5, -2.0]) == approx(
        [3 - 0.1 * 5 / math.sqrt(2), 4 + 0.1 * 5 / math.sqrt(2)]
    )


def test_lamb_decays_within_the_scaled_step():
    # r + λx = (1 + 0.5 · 3, -1 + 0.5 · 4) = (2.5, 1)
    scale = 0.1 * 5 / math.hypot(2.5, 1.0)
    assert one_step([3.0, 4.0], [0.5, -2.0], weight_decay=0.5) == approx(
        [3 - scale * 2.5, 4 - scale]
    )


def test_lamb_takes_the_plain_step_where_the_weights_are_zero():
    assert one_step([0.0, 0.0], [0.5, -2.0]) == approx([-0.1, 0.1])


def test_lamb_s_second_step_is_adam_s_direction_in_the_weights_length():
    # Adam with the same moments, from the same point, says the direction.
    lamb, adam = (nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64)) for _ in range(2))
    optimizers = (
        Lamb([{"params": [lamb]}], lr=0.1, eps=1e-8),
        torch.optim.Adam([adam], lr=0.1, eps=1e-8),
    )
    for gradient in ([0.5, -2.0], [1.0, 0.3]):
        before = lamb.detach().clone()
        adam.data.copy_(before)
        for parameter, optimizer in zip((lamb, adam), optimizers, strict=True):
            parameter.grad = torch.tensor(gradient, dtype=torch.float64)
            optimizer.step()
        direction = (adam.detach() - before) / (adam.detach() - before).norm()
        assert (lamb.detach() - before).tolist() == approx(
            (0.1 * before.norm() * direction).tolist()
        )
