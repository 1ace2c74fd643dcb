"""The parts of a joint model with a rate and a dropout of their own, and what is decayed."""

import pytest
import torch
from pytest import approx
from tiny_training import objective, train_params
from torch import nn

from tandem.config.training import Optimisation
from tandem.training.optimizer import make_optimizer, set_rate


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
