"""Teachers, stored and live: the terms of a list's loss, and whom they reach."""

import numpy as np
import pytest
import torch
from pytest import approx

from tandem.config.losses import distillation
from tandem.config.training import DualTrain
from tandem.training.forward import Budget
from tandem.training.lists import Batch
from tandem.training.objectives import start_list_loss

BIG = Budget(1 << 20, 1 << 20)
DISTIL = {"from": "any", "loss": "kl", "weight": 1.0, "supervision": 1.0}


def list_loss(scores, teacher, **distil):
    """The terms of one list."""
    batch = Batch(np.array([0]), np.arange(len(scores))[None], np.array([teacher], np.float32))
    row = torch.tensor([scores], dtype=torch.float64)
    train = DualTrain.model_validate({"loss": "listwise", "distil": DISTIL | distil})
    return start_list_loss(train)(row, torch.ones_like(row, dtype=bool), row, batch)


def test_a_stored_teachers_options_and_weights_count():
    scores, teacher = [0.3, 1.2, -0.4], [1.0, 0.0, 2.0]
    plain, warm = list_loss(scores, teacher), list_loss(scores, teacher, temperature=4.0)
    by_hand = distillation["kl"](
        *(torch.tensor([row]) / 4 for row in (scores, teacher)), torch.ones(1, 3).bool()
    )
    assert warm["distil"].item() == approx(by_hand.item(), rel=1e-5)
    assert warm["distil"] < plain["distil"]
    assert list_loss(scores, teacher, weight=3.0)["distil"].item() == approx(
        3 * plain["distil"].item()
    )
    assert list_loss(scores, teacher, supervision=0.0).keys() == {"distil"}
    # leads 0.3 - 1.2 and 0.3 + 0.4 in the teacher's order 3rd, 1st, 2nd: -0.7, -1.6 and -0.9
    wide = list_loss(scores, teacher, loss="hinge", margin=2.0)["distil"].item()
    assert wide == approx((2.7 + 3.6 + 2.9) / 3)


def test_a_stored_teachers_scores_are_divided(capsys):
    # margins 3 - 1 = 2 of the model; 8 - 2 = 6 of the teacher, 3 at half the size: (2 - 3)² and (2 - 6)²
    scores, teacher = [3.0, 1.0], [8.0, 2.0]
    options = {"loss": "margin_mse", "supervision": 0.0}
    assert list_loss(scores, teacher, **options, teacher_temperature=2.0)[
        "distil"
    ].item() == approx(1)
    assert not capsys.readouterr().err
    assert list_loss(scores, teacher, **options)["distil"].item() == approx(16)
    assert "3 times as far apart" in capsys.readouterr().err
    list_loss(scores, teacher, loss="kl")  # of proportions
    assert not capsys.readouterr().err


@pytest.mark.parametrize("name", distillation)
def test_a_live_teacher_learns_from_its_student_in_the_papers_semantics_alone(
    make_objective, gradients, batch, name
):
    values, grads = gradients(make_objective("joint", BIG, torch.float64, semantics=name), batch)
    supervised = make_objective("cross", BIG, torch.float64, loss="listwise")
    joint = make_objective("joint", BIG, torch.float64, semantics=name)
    supervised.models.load_state_dict(
        {k: v for k, v in joint.models.state_dict().items() if k.startswith("cross")}
    )
    _, alone = gradients(supervised, batch)
    same = all(
        torch.allclose(grads[key], gradient, rtol=1e-9, atol=1e-12)
        for key, gradient in alone.items()
    )
    assert same is (name != "paper")
    assert any(
        key.startswith("dual") and gradient.abs().max() > 0 for key, gradient in grads.items()
    )
    scores = joint.scores(batch, np.arange(60))  # the dual encoder's of the whole corpus
    dual = scores["dual"].gather(1, torch.from_numpy(np.maximum(batch.passages, 0)))
    expected = distillation[name](dual, scores["cross"], torch.from_numpy(batch.mask)).item() / 4
    assert values["kl"] == approx(expected, rel=1e-9)
