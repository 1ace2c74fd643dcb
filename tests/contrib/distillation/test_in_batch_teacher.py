"""A teacher that scores each batch: its formulas, whom it reaches, and a killed training's bytes."""

import re

import numpy as np
import pytest
import torch
from comparing import interrupt
from pydantic import ValidationError
from pytest import approx
from torch.nn.functional import kl_div

from tandem.config.training import CrossTrain, DualTrain
from tandem.store.files import sha256
from tandem.training.forward import Budget, Seeds, TextVectors
from tandem.training.stage import run

BIG = Budget(1 << 20, 1 << 20)
ALONE = {"supervision": 0.0}


def scored(model, tokens, batch):
    """Every query of a batch against all passages of its lists."""
    sides = TextVectors(model, tokens, "fp32", BIG).encode_batch(batch, Seeds((1, 2)))
    with torch.no_grad():
        return model.scores(*(side.values() for side in sides))


def of_both(objective, batch):
    """What student and teacher say of a batch."""
    return scored(objective.model, objective.tokens, batch), scored(
        objective.teacher.vectors.model, objective.tokens, batch
    )


def test_margins_to_the_other_lists_passages_by_hand(make_objective, gradients, batch):
    in_batch = {"loss": "margin_mse", "weight": 0.75, "own_negatives": False}
    objective = make_objective("dual", BIG, torch.float64, distil=ALONE | {"in_batch": in_batch})
    student, teacher = of_both(objective, batch)
    owner, errors = np.argwhere(batch.mask)[:, 0], []
    for query in range(4):
        first = int(np.flatnonzero(owner == query)[0])
        others = [at for at in range(len(owner)) if owner[at] != query]
        margins = [side[query, first] - side[query, others] for side in (student, teacher)]
        errors.append((margins[0] - margins[1]).square().mean())
    values, grads = gradients(objective, batch)
    assert values == {"loss": approx(0.75 * float(torch.stack(errors).mean()), rel=1e-10)}
    assert all(
        gradient.abs().max() > 0
        for name, gradient in grads.items()
        if name.endswith("query.weight")
    )
    assert all(
        weight.grad is None and not weight.requires_grad
        for weight in objective.teacher.vectors.model.parameters()
    )


def test_the_teachers_distribution_over_the_whole_batch(make_objective, gradients, batch):
    in_batch = {"loss": "kl", "teacher_temperature": 0.25}
    objective = make_objective("dual", BIG, torch.float64, distil={"in_batch": in_batch})
    student, teacher = of_both(objective, batch)
    expected = kl_div(
        student.log_softmax(1),
        (teacher / 0.25).log_softmax(1),
        log_target=True,
        reduction="batchmean",
    )
    values, _ = gradients(objective, batch)
    supervised, _ = gradients(make_objective("dual", BIG, torch.float64), batch)
    assert values["in_batch"] == approx(float(expected), rel=1e-10)
    assert values["sup"] == approx(supervised["loss"], rel=1e-10)


def test_a_teacher_equal_to_its_student_teaches_nothing(make_objective, gradients, batch):
    objective = make_objective(
        "multi", BIG, torch.float64, shared=True, distil=ALONE | {"in_batch": {"loss": "kl"}}
    )
    objective.model.load_state_dict(objective.teacher.vectors.model.state_dict())
    values, grads = gradients(objective, batch)
    assert values["loss"] == approx(0.0, abs=1e-12)
    assert all(gradient.abs().max() < 1e-10 for gradient in grads.values())


@pytest.fixture
def taught_job(model_job, dual_model, tokens, tmp_path):
    """`taught_job(name, **execution)`: a training that a dual encoder of two towers teaches in batch."""

    def make(name, **execution):
        train = {"choose": "last", "distil": ALONE | {"in_batch": {"loss": "kl"}}}
        more = {"in_batch_teacher": dual_model, "in_batch_tokens": tokens}
        return model_job("dual", tmp_path / f"{name}-0123456789", train, more=more, **execution)

    return make


def test_a_killed_training_ends_with_the_same_bytes(taught_job, model_job, tmp_path, monkeypatch):
    from tandem.training import stage

    run(taught_job("undisturbed"))
    job = taught_job("killed", checkpoint_seconds=0)
    interrupt(lambda: stage.run(job), 3, monkeypatch)
    run(job)
    weights = [
        sha256(at / "dual/shared/model.safetensors")
        for at in (job.out, tmp_path / "undisturbed-0123456789")
    ]
    assert weights[0] == weights[1]
    card = (job.out / "dual/shared/README.md").read_text()
    assert "- `kl`: " in card
    # neither was computed
    assert not {"- `paper`: ", "- `listwise`: "} & set(re.findall("- `.*`: ", card))
    run(model_job("dual", tmp_path / "untaught-0123456789", {"choose": "last"}))
    assert sha256(tmp_path / "untaught-0123456789/dual/shared/model.safetensors") != weights[0]


def test_a_teacher_in_batch_needs_a_dual_encoder_and_no_budget_of_minutes():
    distil = {"in_batch": {"from": "colbert"}}
    with pytest.raises(ValidationError, match="distil.in_batch is of dual encoders"):
        CrossTrain.model_validate({"distil": distil})
    with pytest.raises(
        ValidationError, match="budget_minutes does not count what distil.in_batch computes"
    ):
        DualTrain.model_validate({"distil": distil, "budget_minutes": 5})
