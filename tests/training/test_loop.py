"""What surrounds the steps: losses that are no number, known positives."""

import numpy as np
import pytest
import torch
from tiny_training import POSITIVES

from tandem.errors import UserError
from tandem.training.checkpoint import Checkpoints
from tandem.training.forward import Budget
from tandem.training.lists import Lists
from tandem.training.loop import Training
from tandem.training.positives import Positives

TRAIN = {"queries_per_batch": 2, "list_size": 3, "epochs": 1.0, "steps": None, "lr": 1e-3, "optimizer": "adamw"}
TRAIN |= {"weight_decay": 0.0, "warmup": 0.0, "schedule": "constant", "clip": 1.0, "seed": 1, "select": "last"}
TRAIN |= {"validate_every": None}


@pytest.fixture
def training(make_objective, make_job, tmp_path):
    """Four lists, two steps; queries are called q0, q1, …"""
    lists = Lists(np.arange(4), np.arange(5) * 3, np.ones(4, np.int64), np.arange(12))
    job = make_job("model", tmp_path / "ce-0000000000", {"train": TRAIN})
    objective = make_objective("cross", Budget(), **TRAIN)
    return Training(job, objective, lists, None, Budget(), names=lambda rows: [f"q{row}" for row in rows])


def test_a_loss_that_is_no_number_ends_the_training_and_keeps_its_state(training):
    step = training.step

    def broken(state, batch):
        if state.step == 1:
            torch.nn.init.constant_(training.objective.model.head.bias, float("nan"))
        return step(state, batch)

    training.step = broken
    with pytest.raises(UserError, match=r"train ce-0000000000: loss is nan at step 2 \(queries q\d, q\d …\)"):
        training.run()
    there = Checkpoints(training.job.out / "checkpoints").load(training.objective.models, training.optimizer)
    assert there.step == 1
    assert [step for step, name, _ in there.log if name == "loss"] == [1]
    assert not (training.job.out / "stage.json").exists()


def test_a_gradient_that_is_no_number_changes_no_weight(training):
    model = training.objective.model
    model.head.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(UserError, match=r"gradient_norm is (inf|nan) at step 1"):
        training.run()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_known_positives_by_hand():
    # query 3 knows 11 and 5; 5 stands twice; a query without judgements knows nothing
    known = POSITIVES.known(np.array([3, 7, 1]), np.array([5, 2, 11, 5]))
    assert known.tolist() == [[True, False, True, True], [False] * 4, [True, False, False, True]]
    assert POSITIVES.known(np.array([], np.int64), np.array([5])).shape == (0, 1)


def test_known_positives_of_many_equal_a_search_for_each():
    rng = np.random.default_rng(0)
    queries, passages = rng.integers(0, 30, 200), rng.integers(0, 50, 200)
    pairs = set(zip(queries.tolist(), passages.tolist(), strict=True))
    asked, among = rng.integers(0, 40, 25), rng.integers(0, 60, 70)
    expected = [[(q, p) in pairs for p in among.tolist()] for q in asked.tolist()]
    assert Positives(queries, passages).known(asked, among).tolist() == expected
