"""Micro-batches, cached gradients and two processes give one big batch's pre-training loss and gradients."""

import pretrain_cases
import pytest
import torch
from comparing import assert_same
from pretrain_cases import BIG, CASES, SMALL, results
from pytest import approx
from several_processes import assert_two_equal_one, run_together

from tandem.training.forward import Budget


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["fp64", "fp32"]
)
@pytest.mark.parametrize("name", CASES)
def test_parts_equal_one_big_batch(name, dtype, tolerance):
    whole = results(name, BIG, dtype=dtype)
    assert any(float(g.abs().max()) > 1e-3 for g in whole[1].values())
    assert_same(results(name, SMALL, dtype=dtype), whole, tolerance)


@pytest.mark.parametrize("name", ["crop", "ict", "cocondenser"])
def test_cached_gradients_replay_dropout(name):
    uncached, cached = (
        results(name, Budget(micro_tokens=60, graph_tokens=tokens), dropout=0.3)
        for tokens in (1 << 20, 1)
    )
    assert_same(cached, uncached)
    assert uncached[0]["loss"] != approx(results(name)[0]["loss"], rel=1e-3)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The values that each of two processes reports, and its gradients."""
    return run_together(pretrain_cases, tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("name", CASES)
def test_two_processes_equal_one(name, together):
    assert_two_equal_one(together, name, pretrain_cases)
