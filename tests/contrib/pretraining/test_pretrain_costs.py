"""What pre-training costs, in passes of layers counted by hand."""

from dataclasses import replace

import pytest
from costed import make_machine, planned
from pytest import approx

from tandem.contrib.pretraining.costs import estimate_pretrain
from tandem.extras.estimate.estimate import new_setting

SHAPE = {"layers": 1, "hidden": 8, "feed_forward": 16, "vocabulary": 100}
START = {"source": "hub", "name": "org/b", "revision": "main", "pooling": "cls", "shape": SHAPE}


def plan_pretraining(objective, **train):
    """Return the stage of 7 steps of 10 passages, and what its work depends on."""
    train |= {"passages_per_batch": 10, "steps": 7}
    entry = {"source": "pretrain", "objective": objective, "start": "b", "train": train}
    plan = planned(encoders={"b": START, "mine": entry})
    return plan.planner.encoder("mine"), new_setting(plan.settings, make_machine())


def estimate(objective, **train):
    """Return the encoder's shape, the tokens of a passage, and the operations of 7 steps of 10 passages."""
    stage, setting = plan_pretraining(objective, **train)
    _, passage = setting.lengths(stage.upstream["tokens"])
    return setting.shape(stage), passage, estimate_pretrain(stage, setting).operations


@pytest.mark.parametrize("layers", [1, 3])
def test_cocondenser_reads_two_spans_and_has_the_layers_of_its_head(layers):
    shape, passage, operations = estimate(
        "cocondenser",
        head_layers=layers,
        crop_shortest=0.1,
        crop_longest=0.5,
        mask_probability=0.2,
    )
    # twice ten spans of .3 of a passage and two special tokens; a fifth of their own passes to 100 words, from the
    # encoder's last layer and from the head
    texts = 20, 0.3 * passage + 2
    layered = shape.forward(*texts) + replace(shape, layers=layers).forward(*texts)
    projected = 2 * 2 * 20 * 0.3 * passage * 0.2 * 8 * 100
    assert operations == approx(3 * 7 * (layered + projected))


@pytest.mark.parametrize("layers", [1, 3])
def test_condenser_reads_whole_passages(layers):
    shape, passage, operations = estimate("condenser", head_layers=layers, mask_probability=0.2)
    texts = 10, passage + 2
    layered = shape.forward(*texts) + replace(shape, layers=layers).forward(*texts)
    assert operations == approx(3 * 7 * (layered + 2 * 2 * 10 * passage * 0.2 * 8 * 100))


@pytest.mark.parametrize(
    ("objective", "predicted"),
    [("mlm", 0.2), ("condenser", 0.2 + 0.2), ("retromae", 0.2 + 1), ("tsdae", 1), ("crop", 0)],
)
def test_logits_pass_six_times_beside_the_vocabularys_gradient(objective, predicted):
    hides = {} if objective in ("tsdae", "crop") else {"mask_probability": 0.2}
    stage, setting = plan_pretraining(objective, **hides)
    shape, passage = setting.shape(stage), setting.lengths(stage.upstream["tokens"])[1]
    # one micro-batch: its gradient is filled and added; weights, moments and gradient pass in the step
    gradient = (2 + 4) * 8 * 100
    logits = 6 * 10 * passage * predicted * shape.vocabulary
    assert estimate_pretrain(stage, setting).updated == approx(7 * (gradient + logits))
