"""Batches side by side: in order, with the caller's modes, and gradients that belong to one weight each."""

import threading
import time

import pytest
import torch

from tandem.extras.side_by_side import add_gradients, carry_gradients, map_side_by_side


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    """So many threads of torch's, those of before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_each_computed_on_its_share_of_the_threads(threads):
    met = threading.Barrier(threads)

    def compute(number):
        if number < threads:
            met.wait(20)  # the first ones are computed at once
        time.sleep(0.01 * (7 - number))
        return number, torch.get_num_threads()

    assert list(map_side_by_side(compute, range(7))) == [(number, 1) for number in range(7)]
    assert torch.get_num_threads() == threads


def test_few_batches_have_more_threads_each(threads):
    assert (
        list(map_side_by_side(lambda _: torch.get_num_threads(), range(2)))
        == [max(1, threads // 2)] * 2
    )


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_gradients_are_recorded_as_where_batches_are_asked_for(threads, mode):
    weight = torch.ones(3, requires_grad=True)
    with mode():
        here = weight * 2
        there = list(map_side_by_side(lambda number: weight * number, [2.0, 3.0]))
    assert {value.requires_grad for value in there} == {here.requires_grad}
    assert {value.is_inference() for value in there} == {here.is_inference()}


def test_an_error_of_a_batch_is_the_callers(threads):
    def compute(number):
        if number == 3:
            raise ValueError("a broken batch")
        return number

    done = []
    with pytest.raises(ValueError, match="a broken batch"):
        done.extend(map_side_by_side(compute, range(40)))
    results = map_side_by_side(compute, range(3))
    assert next(results) == 0
    results.close()  # who needs no more leaves the rest


def test_a_gradient_that_two_weights_share_is_copied():
    first, second, third = (torch.ones(2, requires_grad=True) for _ in range(3))
    carry_gradients([first + second + third.sum()], [torch.tensor([1.0, 2.0])])
    first.grad.mul_(10)
    assert [weight.grad.tolist() for weight in (first, second, third)] == [[10, 20], [1, 2], [3, 3]]
    third.grad.mul_(10)  # was one number, twice
    assert third.grad.tolist() == [30, 30]


def test_gradients_add_up():
    weight = torch.ones(2, requires_grad=True)
    for number in (1.0, 2.0):
        add_gradients([(weight, torch.full((2,), number))])
    assert weight.grad.tolist() == [3, 3]
