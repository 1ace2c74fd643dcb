"""Layers that learn by oneDNN: the plain layer's values and gradients, whatever the threads, never of old weights."""

import copy

import pytest
import torch
from torch import nn

from tandem.config.training import Optimisation
from tandem.models.acceleration import LearningLinear, use_learning_layers
from tandem.models.device import is_onednn_used
from tandem.training.optimizer import make_optimizer

pytestmark = pytest.mark.skipif(not is_onednn_used(), reason="PyTorch without oneDNN, or a GPU")
TRAIN = Optimisation(lr=0.1)


def by_hand():
    plain = nn.Linear(2, 2)
    with torch.no_grad():
        plain.weight.copy_(torch.tensor([[1.0, 2.0], [-3.0, 0.5]]))
        plain.bias.copy_(torch.tensor([0.25, -1.0]))
    return plain


def test_a_layer_and_its_gradients_by_hand():
    layer = LearningLinear(by_hand(), rows=4)
    inputs = torch.tensor([[[1.0, 1.0], [2.0, -4.0]]], requires_grad=True)
    outputs = layer(inputs)
    assert outputs.tolist() == [[[3.25, -3.5], [-5.75, -9.0]]]
    outputs.backward(torch.tensor([[[1.0, 0.0], [2.0, -1.0]]]))
    assert inputs.grad.tolist() == [[[1.0, 2.0], [5.0, 3.5]]]  # dy W
    assert layer.weight.grad.tolist() == [[5.0, -7.0], [-2.0, 4.0]]  # dyᵀ x
    assert layer.bias.grad.tolist() == [3.0, -1.0]  # Σ dy


def gradients(layer, inputs, gradient):
    layer.zero_grad()
    leaf = inputs.clone().requires_grad_()
    values = layer(leaf)
    values.backward(gradient)
    of_bias = [] if layer.bias is None else [layer.bias.grad.clone()]
    return [values.detach(), leaf.grad, layer.weight.grad.clone(), *of_bias]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 96, 1000])
def test_any_shape_gives_what_the_plain_layer_gives_and_threads_change_no_bit(rows, bias):
    torch.manual_seed(0)
    plain = nn.Linear(96, 200, bias=bias)
    inputs, gradient = torch.randn(3, rows, 96), torch.randn(3, rows, 200)
    expected = gradients(plain.double(), inputs.double(), gradient.double())
    plain.float()
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(gradients(LearningLinear(plain, rows=512), inputs, gradient))
    finally:
        torch.set_num_threads(before)
    for value, true in zip(results[0], expected, strict=True):
        assert float((value - true).abs().max()) <= 2e-6 * float(true.abs().max())
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_step_of_the_optimizer_is_seen_by_the_next_product():
    torch.manual_seed(0)
    layer, inputs = LearningLinear(nn.Linear(32, 48), rows=64), torch.randn(10, 32)
    optimizer = make_optimizer(layer, TRAIN)
    for _ in range(3):
        results = gradients(layer, inputs, torch.ones(10, 48))
        assert torch.allclose(results[0], inputs @ layer.weight.T + layer.bias, atol=1e-5)
        assert torch.allclose(results[1], torch.ones(10, 48) @ layer.weight, atol=1e-5)
        optimizer.step()


def test_weights_that_are_loaded_and_copies_have_their_own():
    torch.manual_seed(0)
    layer, other, inputs = (
        LearningLinear(nn.Linear(8, 8), rows=64),
        nn.Linear(8, 8),
        torch.randn(4, 8),
    )
    layer(inputs)
    twin = copy.deepcopy(layer)
    layer.load_state_dict(other.state_dict())
    assert torch.allclose(layer(inputs), other(inputs), atol=1e-6)
    assert torch.allclose(twin(inputs), inputs @ twin.weight.T + twin.bias, atol=1e-6)
    assert not torch.allclose(twin(inputs), other(inputs), atol=1e-2)


def test_what_does_not_learn_gets_no_gradient_but_hands_one_on():
    layer = LearningLinear(by_hand(), rows=4)
    layer.requires_grad_(False)
    inputs = torch.tensor([[1.0, 1.0]], requires_grad=True)
    layer(inputs).backward(torch.tensor([[1.0, 1.0]]))
    assert inputs.grad.tolist() == [[-2.0, 2.5]]
    assert layer.weight.grad is None


def test_under_autocast_and_in_float64_it_is_the_plain_layer():
    plain = by_hand()
    layer, inputs = LearningLinear(plain, rows=4), torch.tensor([[1.0, 3.0]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(inputs).dtype == torch.bfloat16
    double = LearningLinear(by_hand().double(), rows=4)
    assert torch.equal(double(inputs.double()), plain.double()(inputs.double()))


def test_an_encoder_keeps_its_parameters_and_their_names():
    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    tower = nn.Sequential(Tower(), Tower())
    before = dict(tower.named_parameters())
    use_learning_layers(tower, rows=64)
    assert sum(isinstance(module, LearningLinear) for module in tower.modules()) == 2
    after = dict(tower.named_parameters())
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)
