"""Micro-batches, cached gradients and two processes give one big batch's loss and gradients of PARADE."""

import parade_cases
import pytest
import torch
from comparing import assert_same
from parade_cases import BIG, CASES, SMALL, results
from ranks import skip_without_gpus
from several_processes import assert_two_equal_one, run_together

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["fp64", "fp32"]
)
@pytest.mark.parametrize("name", CASES)
def test_parts_equal_one_big_batch(name, dtype, tolerance):
    assert_same(
        results(name, SMALL, dtype=dtype),
        results(name, BIG, dtype=dtype),
        tolerance,
    )


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The values that each of two processes reports, and its gradients."""
    skip_without_gpus(2)
    return run_together(parade_cases, tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("name", CASES)
def test_two_processes_equal_one(name, together):
    assert_two_equal_one(together, name, parade_cases)
