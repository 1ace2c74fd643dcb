"""What tests of training share: are two results the same, and a training that is interrupted at a step."""

import pytest
import torch
from pytest import approx

from tandem.training.loop import TrainingLoop


def assert_same(actual, other, tolerance=1e-10):
    """Values and gradients agree, relative to the largest gradient."""
    (values, grads), (expected, gradients) = actual, other
    assert list(values) == list(expected)
    assert values == approx(expected, rel=tolerance, abs=tolerance)
    assert grads.keys() == gradients.keys()
    scale = max(float(g.abs().max()) for g in gradients.values())
    for path, gradient in gradients.items():
        torch.testing.assert_close(
            grads[path], gradient, rtol=tolerance, atol=tolerance * scale, msg=path
        )


def interrupt(train, at, monkeypatch):
    """Call `train()`, which is interrupted before the step that follows `at` steps."""
    step = TrainingLoop.step

    def stop(self, state, batch):
        if state.step == at:
            raise KeyboardInterrupt
        return step(self, state, batch)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "step", stop)
        with pytest.raises(KeyboardInterrupt):
            train()
