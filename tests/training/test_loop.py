"""What surrounds the steps: losses that are not numbers, known positives."""

import numpy as np
import pytest
import torch
from tiny_training import POSITIVES

from tandem.errors import UserError
from tandem.models.ragged import Ragged
from tandem.training.forward import Budget
from tandem.training.lists import Batch, Lists, Positives
from tandem.training.loop import TrainingLoop

pytestmark = pytest.mark.gpu

TRAIN = {
    "queries_per_batch": 2,
    "list_size": 3,
    "epochs": 1.0,
    "steps": None,
    "lr": 1e-3,
    "optimizer": "adamw",
}
TRAIN |= {
    "weight_decay": 0.0,
    "warmup": 0.0,
    "schedule": "constant",
    "clip": 1.0,
    "seed": 1,
    "choose": "last",
}
TRAIN |= {"validate_every": None}


@pytest.fixture
def prepared(make_objective, make_job, tmp_path):
    """`prepared(kind, **train)`: a training of four lists, two steps; queries are called q0, q1, …"""

    def make(kind="cross", **train):
        lists = Lists(np.arange(4), np.arange(5) * 3, np.ones(4, np.int64), np.arange(12))
        execution = {"checkpoint_seconds": train.pop("checkpoint_seconds", 120)}
        params = {"objective": kind, "train": TRAIN | train}
        job = make_job("model", tmp_path / "ce-0000000000", params, execution=execution)
        objective = make_objective(kind, Budget(), **(TRAIN | train))
        return TrainingLoop(
            job,
            job.params.train,
            objective,
            lists,
            None,
            names=lambda rows: [f"q{row}" for row in rows],
        )

    return make


@pytest.fixture
def training(prepared):
    """That of a cross-encoder."""
    return prepared()


def poison(training):
    """Make one weight no number."""
    with torch.no_grad():
        next(training.objective.models.parameters()).view(-1)[0] = float("nan")


def poisoned_before(training, last):
    """Let a weight become no number before step `last`, counted from 1."""
    step = training.step

    def broken(state, batch):
        if state.step == last - 1:
            poison(training)
        return step(state, batch)

    training.step = broken


def load_checkpoint(training):
    """The checkpoint that is there, its weights in the models; step 0 where there is none."""
    return training.checkpoints.load(training.objective.models, training.optimizer)


@pytest.mark.parametrize("kind", ["dual", "cross", "joint"])
def test_a_loss_that_is_no_number_ends_the_training_and_keeps_its_state(prepared, kind):
    training = prepared(kind)
    poisoned_before(training, 2)
    message = r"train ce-0000000000: loss is nan at step 2 \(queries q\d, q\d …\); \S+ held inf or nan before it"
    with pytest.raises(UserError, match=message):
        training.run()
    there = load_checkpoint(training)
    assert there.step == 1
    assert [step for step, name, _ in there.log if name == "loss"] == [1]
    assert not (training.job.out / "stage.json").exists()


def test_a_checkpoint_that_is_whole_is_not_given_up_for_one_that_is_not(prepared):
    training = prepared(checkpoint_seconds=0)
    poisoned_before(training, 2)
    with pytest.raises(UserError, match="loss is nan at step 2"):
        training.run()
    assert load_checkpoint(training).step == 1
    assert training.find_overflow() == ""


@pytest.mark.parametrize("kind", ["dual", "cross", "joint"])
def test_weights_that_overflow_in_the_last_step_are_not_handed_over(prepared, kind):
    # beyond what fp32 holds; loss and gradient are fine
    training = prepared(kind, queries_per_batch=4, lr=1e39)
    with pytest.raises(
        UserError, match=r"train ce-0000000000: \S+ holds inf or nan after step 1; lower train.lr"
    ):
        training.run()
    assert load_checkpoint(training).step == 0


def test_weights_that_are_no_numbers_are_not_saved_on_the_way(prepared):
    training = prepared(checkpoint_seconds=0, lr=1e39)
    with pytest.raises(UserError, match="holds inf or nan after step 1"):
        training.run()
    assert load_checkpoint(training).step == 0


def test_a_gradient_that_is_no_number_changes_no_weight(training):
    model = training.objective.model
    model.head.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(UserError, match=r"gradient_norm is (inf|nan) at step 1"):
        training.run()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_known_positives_by_hand():
    # query 3 knows 11 and 5; 5 stands twice; a query without judgements knows nothing
    known = POSITIVES.mask_known(np.array([3, 7, 1]), np.array([5, 2, 11, 5]))
    assert known.tolist() == [[True, False, True, True], [False] * 4, [True, False, False, True]]
    assert POSITIVES.mask_known(np.array([], np.int64), np.array([5])).shape == (0, 1)


# passages 0 and 1 have the same tokens
COPIES = Ragged(np.array([7, 8, 7, 8, 7, 9]), np.array([0, 2, 4, 5, 6]))


def test_a_copy_of_a_known_positive_is_one_too():
    queries, passages = np.array([4, 5]), np.array([0, 1, 2, 3])
    known = Positives(np.array([4, 5]), np.array([1, 3]), COPIES).mask_known(queries, passages)
    assert known.tolist() == [[True, True, False, False], [False, False, False, True]]
    known = Positives(np.array([4, 5]), np.array([1, 3])).mask_known(queries, passages)
    assert known.tolist() == [[False, True, False, False], [False, False, False, True]]


def test_lengthened_lists_repeat_no_passage():
    # Passages 0 and 1 are one: query 5 has a copy as its negative, query 6 gets it once, query 7 knows it as relevant.
    batch = Batch(np.array([4, 8, 5, 6, 7]), np.array([[0, 2], [1, -1], [3, 1], [2, -1], [2, 3]]))
    positives = Positives(np.array([4, 8, 5, 6, 7, 7]), np.array([0, 1, 3, 2, 2, 1]), COPIES)
    lists = positives.lengthen(batch).passages
    assert lists[:, :2].tolist() == batch.passages.tolist()
    assert lists[:, 2:].tolist() == [
        [-1, -1, 3, -1, -1],
        [-1, -1, 3, 2, -1],
        [-1, -1, -1, 2, -1],
        [0, -1, 3, -1, -1],
        [-1, -1, -1, -1, -1],
    ]


def test_known_positives_of_many_equal_a_search_for_each():
    rng = np.random.default_rng(0)
    queries, passages = rng.integers(0, 30, 200), rng.integers(0, 50, 200)
    pairs = set(zip(queries.tolist(), passages.tolist(), strict=True))
    query_rows, passage_rows = rng.integers(0, 40, 25), rng.integers(0, 60, 70)
    expected = [[(q, p) in pairs for p in passage_rows.tolist()] for q in query_rows.tolist()]
    assert Positives(queries, passages).mask_known(query_rows, passage_rows).tolist() == expected
