"""What is added to trainings is refused where it returns what no training can use."""

import re

import pytest
import torch

from tandem.config.training import FITS, OPTIMIZERS, Optimisation
from tandem.errors import UserError
from tandem.stages.training import OUTCOMES, WATCHES
from tandem.training.optimizer import make_optimizer
from tandem.training.stage import run


@pytest.fixture
def add(monkeypatch):
    """`add(registry, entry)`: register it as `plain_sgd` while the test runs."""
    return lambda registry, entry: monkeypatch.setitem(registry, "plain_sgd", entry)


def make_sgd(groups, lr):
    return torch.optim.SGD(groups, lr=lr)


def test_an_optimizer_of_all_groups_is_taken(add):
    add(OPTIMIZERS, make_sgd)
    assert (
        len(make_optimizer(torch.nn.Linear(2, 2), Optimisation(optimizer="plain_sgd")).param_groups)
        == 2
    )


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (lambda groups, lr: None, "returned None; a torch.optim.Optimizer is needed"),
        # torch's usual call, in which no group has its `share` of the learning rate
        (
            lambda groups, lr: torch.optim.SGD([w for g in groups for w in g["params"]], lr=lr),
            "gave the optimizer other parameters than it was called with, or no `share`",
        ),
        # the biases would stay as they are
        (
            lambda groups, lr: torch.optim.SGD(groups[:1], lr=lr),
            "gave the optimizer other parameters than it was called with",
        ),
    ],
    ids=["none", "without groups", "of one group"],
)
def test_an_optimizer_of_something_else_is_refused(add, start, message):
    add(OPTIMIZERS, start)
    with pytest.raises(UserError, match=f"test_training_additions.py: <lambda> {message}"):
        make_optimizer(torch.nn.Linear(2, 2), Optimisation(optimizer="plain_sgd"))


class HalfWatch:
    """A watch that only follows."""

    def follow(self, loop, state):
        return False


@pytest.mark.parametrize(
    ("registry", "result", "message"),
    [
        (FITS, None, "returned None; a DualTrain, as it was called with, is needed"),
        (OUTCOMES, {"lists": 4}, "returned {'lists': 4}; (facts, warnings) are needed"),
        (OUTCOMES, ({}, "late"), "returned ({}, 'late'); (facts, warnings) are needed"),
    ],
    ids=["fit", "outcome", "outcome of words"],
)
def test_what_follows_a_trainings_data_or_end_returns_what_is_needed(
    add, quick_job, registry, result, message
):
    add(registry, lambda *values: result)
    with pytest.raises(UserError, match=f"<lambda> .*{re.escape(message)}"):
        run(quick_job("dual"))


def test_two_watches_of_one_training_are_refused(add, quick_job):
    """The second one was never asked."""
    add(WATCHES, lambda *values: HalfWatch())
    with pytest.raises(
        UserError, match="validation and plain_sgd would each watch this training; set train.choose"
    ):
        run(quick_job("dual", train={"choose": "dev"}))


def test_what_is_no_watch_is_refused(add, quick_job, monkeypatch):
    monkeypatch.delitem(WATCHES, "validation")
    add(WATCHES, lambda *values: HalfWatch())
    with pytest.raises(UserError, match=r"which has no lists; see Watch in tandem\.training\.loop"):
        run(quick_job("dual"))
