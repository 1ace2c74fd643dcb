"""LAMB by hand, and the parts of a joint model with a rate and a dropout of their own."""

import math

import pytest
import torch
from pytest import approx
from tiny_training import objective, train_params
from torch import nn

from tandem.config.training import Optimisation
from tandem.training.optimizer import Lamb, make_optimizer, set_rate


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


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_parts_of_a_joint_model_have_their_own_rate(name):
    train = train_params("joint", lr=1e-3, optimizer=name, reranker={"lr": 1e-4})
    models = objective("joint").models
    optimizer = make_optimizer(models, train)
    set_rate(optimizer, 5e-4)  # half way down
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert {rates[id(p)] for p in models["dual"].parameters()} == {5e-4}
    [own] = {rates[id(p)] for p in models["cross"].parameters()}
    assert own == approx(5e-5)


def test_without_weight_decay_adamw_takes_the_steps_of_adam():
    # as docs/fidelity.md says of the papers' Adam
    layers = {}
    for name in ("adamw", "adam"):
        torch.manual_seed(0)
        layer = nn.Linear(3, 2)
        optimizer = make_optimizer(layer, Optimisation(lr=1e-2, weight_decay=0.0, optimizer=name))
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(1, 3)).square().sum().backward()
            optimizer.step()
        layers[name] = layer.weight
    assert torch.equal(layers["adamw"], layers["adam"])


def test_without_rates_of_their_own_all_parameters_have_the_training_s():
    layer = nn.Linear(3, 2)
    optimizer = make_optimizer(layer, Optimisation(lr=2e-5, weight_decay=0.1))
    set_rate(optimizer, 1.3e-5)
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [
        (1.3e-5, 0.1),
        (1.3e-5, 0.0),
    ]
