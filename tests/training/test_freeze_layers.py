"""`train.freeze_layers`: what learns, what stays bit for bit, and what a step costs."""

import numpy as np
import pytest
import torch
from tiny_training import objective

from tandem.config.loading import load_settings
from tandem.config.training import DualTrain
from tandem.errors import UserError
from tandem.extras.training_operations import count_step_operations
from tandem.models.dual import DualEncoder
from tandem.models.hub import load_encoder
from tandem.store.artifact import open_artifact
from tandem.training import stage
from tandem.training.checkpoints import list_learning
from tandem.training.forward import Budget
from tandem.training.lists import Lists, Positives
from tandem.training.loop import TrainingLoop

PARTS = {"dual": ["dual"], "cross": ["cross"], "joint": ["dual", "cross"]}


@pytest.mark.parametrize("name", ["dual", "cross", "joint"])
def test_only_the_upper_layer_and_the_head_learn(name, quick_job):
    job = quick_job(name, train={"freeze_layers": 1, "lr": 1e-2})
    learner = stage.build_ranker(job, Positives(np.array([0]), np.array([2])), Budget(200, 400))
    before = {
        path: parameter.detach().clone() for path, parameter in learner.models.named_parameters()
    }
    training = TrainingLoop(job, job.params.train, learner, stage.read_training_lists(job), None)
    training.run()
    moved = {
        path
        for path, parameter in learner.models.named_parameters()
        if not torch.equal(parameter, before[path])
    }
    upper = {
        path for path in before if ".encoder.layer.1." in path or path.startswith("cross.head")
    }
    assert moved == list_learning(learner.models).keys() == upper
    assert sum(len(group["params"]) for group in training.optimizer.param_groups) == len(upper)
    assert len({path.split(".")[0] for path in upper}) == len(PARTS[name])


def test_the_trained_model_has_the_start_s_lower_layer(quick_job, encoder):
    job = quick_job("dual", train={"freeze_layers": 1, "lr": 1e-2})
    stage.run(job)
    model, start = (
        DualEncoder.load(job.out / "dual").towers["passage"],
        load_encoder(encoder.folder / "hf"),
    )
    same = {
        path
        for path, weight in start.named_parameters()
        if torch.equal(weight, model.get_parameter(path))
    }
    assert same == {
        path for path, _ in start.named_parameters() if not path.startswith("encoder.layer.1.")
    }
    assert open_artifact(job.out).params["train"]["freeze_layers"] == 1


def test_a_training_without_it_has_the_key_of_before():
    assert "freeze_layers" not in DualTrain().model_dump()
    assert DualTrain(freeze_layers=2).model_dump()["freeze_layers"] == 2


def test_with_lora_it_is_refused(configured, pytestconfig):
    config = configured("models.ce_deneg.train.freeze_layers", 2)
    config["models"]["ce_deneg"]["lora"] = {"rank": 4}
    with pytest.raises(
        UserError, match=r"models.ce_deneg.train.freeze_layers is 2, but lora freezes every layer"
    ):
        load_settings(config, pytestconfig.rootpath)


def test_a_step_counts_as_less_work():
    # 2 of 6 operations a weight are left for the frozen one of two equal layers: (6 + 2) / (6 + 6) of the work
    drawn = Lists(np.arange(4), np.arange(0, 17, 4), np.ones(4, np.int64), np.arange(16))
    plain, frozen = (objective("dual", freeze_layers=count) for count in (0, 1))
    cost, less = (
        count_step_operations(learner.models, learner.tokens, drawn, learner.train)
        for learner in (plain, frozen)
    )
    assert less / cost == pytest.approx(8 / 12)
