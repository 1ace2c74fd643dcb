"""What is added to trainings is refused where it returns what no training can use."""

import re

import numpy as np
import pytest
import torch

from tandem.config.training import FITS, OPTIMIZERS, Optimisation
from tandem.errors import UserError
from tandem.stages.training import OUTCOMES, WATCHES
from tandem.training.checkpoints import Checkpoints, State
from tandem.training.instances import Instances
from tandem.training.lists import Lists
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


class Counting(torch.optim.Optimizer):
    """Steps of w / (k n): k counts in the group, n in the parameter's state."""

    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr, "betas": (0.9, 0.99), "k": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] += 1
            for weights in group["params"]:
                state = self.state[weights]
                state["n"] = state.get("n", 0) + 1
                weights -= 0.1 * weights / (group["k"] * state["n"])


def test_an_optimizer_that_counts_goes_on_where_it_was(add, tmp_path):
    """A number of its state ended the training at the first checkpoint; one of a group began anew."""
    add(OPTIMIZERS, Counting)
    checkpoints = Checkpoints(tmp_path / "checkpoints", "origin")

    def start():
        layer = torch.nn.Linear(2, 2)
        return layer, make_optimizer(layer, Optimisation(optimizer="plain_sgd"))

    layer, optimizer = start()
    optimizer.step()
    checkpoints.save(State(1), layer, optimizer)
    resumed, other = start()
    assert checkpoints.load(resumed, other).step == 1
    for stepping in (optimizer, other):
        stepping.step()
        assert [group["k"] for group in stepping.param_groups] == [2, 2]
        assert [state["n"] for state in stepping.state.values()] == [2, 2]
    assert torch.equal(layer.weight, resumed.weight)


class Sharing(torch.optim.Optimizer):
    """Steps of w / n, where n counts for all weights in one tensor."""

    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr})
        self.count = torch.zeros(())

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weights in group["params"]:
                count = self.state[weights].setdefault("n", self.count)
                count += 1
                weights -= 0.1 * weights / count


def test_a_tensor_that_parameters_share_is_shared_after_a_resumption(add, tmp_path):
    """safetensors refuses one tensor under two names."""
    add(OPTIMIZERS, Sharing)
    layer = torch.nn.Linear(2, 2)
    optimizer = make_optimizer(layer, Optimisation(optimizer="plain_sgd"))
    optimizer.step()
    checkpoints = Checkpoints(tmp_path / "checkpoints", "origin")
    checkpoints.save(State(1), layer, optimizer)
    resumed = torch.nn.Linear(2, 2)
    other = make_optimizer(resumed, Optimisation(optimizer="plain_sgd"))
    checkpoints.load(resumed, other)
    for stepping in (optimizer, other):
        stepping.step()
        assert [float(state["n"]) for state in stepping.state.values()] == [4, 4]
    assert torch.equal(layer.weight, resumed.weight)


def keep_list(optimizer):
    next(iter(optimizer.state.values()))["past"] = [1.0]


def keep_tensor_of_group(optimizer):
    optimizer.param_groups[0]["d"] = torch.ones(2)


def keep_global_state(optimizer):
    optimizer.state["all"]["k"] = 1


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (keep_list, "keeps `past` of a parameter as a list; checkpoints keep tensors and single"),
        (keep_tensor_of_group, "keeps `d` of a group as a Tensor; checkpoints keep single values"),
        (keep_global_state, "keeps a state of 'all', which is not a parameter"),
    ],
)
def test_an_optimizer_whose_state_no_checkpoint_keeps_is_refused_at_its_first_step(
    add, tmp_path, keep, message
):
    class Remembering(Counting):
        def step(self, closure=None):
            super().step()
            keep(self)

    add(OPTIMIZERS, lambda groups, lr: Remembering(groups, lr))
    layer = torch.nn.Linear(2, 2)
    optimizer = make_optimizer(layer, Optimisation(optimizer="plain_sgd"))
    with pytest.raises(
        UserError, match=f"test_training_additions.py: <lambda>: its optimizer {message}"
    ):
        optimizer.step()
    with pytest.raises(UserError, match=f"the optimizer Remembering {message}"):
        Checkpoints(tmp_path, "origin").save(State(1), layer, optimizer)


class Reversed:
    def __call__(self, instances, order, *_):
        return order[::-1]


class Halved:
    def __call__(self, instances, order, *_):
        return order[: len(order) // 2]


@pytest.mark.parametrize(
    ("arrange", "problem"),
    [
        (lambda instances, order, *_: order.sort(), "<lambda> .* as None"),
        (lambda instances, order, *_: [*order.tolist(), 0], r"<lambda> .* as \[.*, 0\]"),
        (lambda instances, order, *_: np.zeros_like(order), r"<lambda> .* as array\(\[0, 0, 0"),
        (Halved(), r"__call__ .* as array"),
    ],
    ids=["in place", "one too many", "one again and again", "too few"],
)
def test_an_order_of_an_epoch_has_each_instance_once(arrange, problem):
    """With too many, or one several times, others were never learned; too few ended in a traceback."""
    lists = Lists(
        queries=np.arange(4), offsets=np.arange(0, 9, 2), positives=np.ones(4, np.int64),
        passages=np.arange(8, dtype=np.uint32), scores=None,
    )  # fmt: skip
    own = Instances(lists, 2, arrange=Reversed()).order(2, 7, 0).tolist()
    assert own == Instances(lists, 2).order(2, 7, 0).tolist()[::-1]
    message = f"test_training_additions.py: {problem}.*; each from 0 to 3 is needed once"
    with pytest.raises(UserError, match=message):
        Instances(lists, 2, arrange=arrange).order(2, 7, 0)


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
