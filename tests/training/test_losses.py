import math

import pytest
import torch
from pytest import approx

from tandem.training.losses.distillation import dynamic_listwise_distillation, reference_listwise_distillation
from tandem.training.losses.listwise import listwise
from tandem.training.losses.pointwise import pointwise

LN2, LN3 = math.log(2), math.log(3)
LOSSES = {"listwise": listwise, "pointwise": pointwise}
DISTILLATIONS = {"paper": dynamic_listwise_distillation, "reference": reference_listwise_distillation}


def full(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def test_listwise_by_hand():
    # e^ln2 / (e^ln2 + e^0 + e^0) = 2/4; e^0 / (e^0 + e^ln3 + e^0) = 1/5; a sum over the two queries
    scores = torch.tensor([[LN2, 0.0, 0.0], [0.0, LN3, 0.0]])
    assert listwise(scores, full(scores)).item() == approx(math.log(2) + math.log(5))


def test_pointwise_by_hand():
    # σ(ln 3) = 3/4, 1 - σ(ln 3) = 1/4; the mean over two passages, the sum over two queries
    scores = torch.tensor([[LN3, LN3], [0.0, 0.0]])
    expected = (-math.log(3 / 4) - math.log(1 / 4)) / 2 + (LN2 + LN2) / 2
    assert pointwise(scores, full(scores)).item() == approx(expected)


def test_distillation_of_two_passages_by_hand():
    # softmax(0, ln 3) = (1/4, 3/4); softmax(0, 0) = (1/2, 1/2)
    de, ce = torch.tensor([[0.0, LN3]]), torch.zeros(1, 2)
    paper = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert dynamic_listwise_distillation(de, ce, full(de)).item() == approx(paper)
    reference = (0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)) / 2
    assert reference_listwise_distillation(de, ce, full(de)).item() == approx(reference)


def test_the_paper_teaches_both_the_reference_only_the_retriever():
    for name, distil in DISTILLATIONS.items():
        de, ce = torch.tensor([[0.0, 1.0]], requires_grad=True), torch.tensor([[0.5, 0.0]], requires_grad=True)
        distil(de, ce, full(de)).backward()
        assert de.grad.abs().sum() > 0
        assert (ce.grad is not None) is (name == "paper")


def test_reference_gradient_is_the_difference_of_the_softmaxes_over_the_length():
    # d KL(t || softmax(x)) / dx = softmax(x) - t; Paddle's mean divides by the list's length, here 3
    de, ce = torch.tensor([[0.2, -1.0, 0.7]], requires_grad=True), torch.tensor([[1.0, 0.0, -0.3]])
    reference_listwise_distillation(de, ce, full(de)).backward()
    torch.testing.assert_close(de.grad, (de.detach().softmax(-1) - ce.softmax(-1)) / 3)


@pytest.mark.parametrize("name", LOSSES)
def test_padding_counts_for_nothing(name):
    scores = torch.tensor([[0.3, -0.7, 1.1], [0.9, 0.1, 50.0]], requires_grad=True)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    loss = LOSSES[name](scores, mask)
    short = torch.tensor([[0.9, 0.1]])
    assert loss.item() == approx((LOSSES[name](scores[:1], mask[:1]) + LOSSES[name](short, full(short))).item())
    loss.backward()
    assert scores.grad[1, 2] == 0


@pytest.mark.parametrize("name", DISTILLATIONS)
def test_padding_counts_for_nothing_in_distillation(name):
    de = torch.tensor([[0.3, -0.7, 9.0]], requires_grad=True)
    ce = torch.tensor([[0.1, 0.4, -50.0]], requires_grad=True)
    loss = DISTILLATIONS[name](de, ce, torch.tensor([[True, True, False]]))
    short = [x.detach()[:, :2] for x in (de, ce)]
    assert loss.item() == approx(DISTILLATIONS[name](*short, full(short[0])).item())
    loss.backward()
    assert torch.isfinite(de.grad).all()
    assert de.grad[0, 2] == 0


@pytest.mark.parametrize("name", [*LOSSES, *DISTILLATIONS])
def test_gradients_against_finite_differences(name):
    torch.manual_seed(0)
    scores = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(3, 4, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]], dtype=torch.bool)
    if name in LOSSES:
        assert torch.autograd.gradcheck(lambda s: LOSSES[name](s, mask), scores)
        return
    assert torch.autograd.gradcheck(lambda s: DISTILLATIONS[name](s, teacher, mask), scores)
    if name == "paper":
        assert torch.autograd.gradcheck(lambda t: dynamic_listwise_distillation(teacher, t, mask), scores)
