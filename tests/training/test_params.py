"""Parameters of trainings: the objective decides which keys there are, and mistakes name key and objective's own."""

import pytest

from tandem.config.references import parameters_of
from tandem.config.training import CrossTrain, DualTrain, JointTrain
from tandem.errors import UserError
from tandem.store.job import Job, plain


def job(params, kind="model", tmp_path=None):
    return Job(kind, tmp_path, params, {})


@pytest.mark.parametrize(
    ("objective", "model", "default"),
    [
        ("dual", DualTrain, "listwise"),
        ("cross", CrossTrain, "pointwise"),
        ("joint", JointTrain, None),
    ],
)
def test_the_objective_decides_the_parameters(objective, model, default, tmp_path):
    train = job(
        {"objective": objective, "train": {"lr": 1e-4, "seed": 3}}, tmp_path=tmp_path
    ).params.train
    assert type(train) is parameters_of(model)
    assert train.lr == 1e-4
    assert getattr(train, "loss", None) == default


@pytest.mark.parametrize(
    ("kind", "params", "key"),
    [
        (
            "model",
            {"objective": "cross", "train": {"passage_centric": 0.1}},
            "train.passage_centric",
        ),
        ("model", {"objective": "joint", "train": {"lr": -1.0}}, "train.lr"),
        ("model", {"objective": "both", "train": {}}, "objective"),
    ],
)
def test_mistakes_name_the_key(kind, params, key, tmp_path):
    with pytest.raises(UserError, match=rf"{kind}: --params\.{key} is "):
        job(params, kind, tmp_path)


def test_parameters_are_written_with_their_defaults_and_read_back(tmp_path):
    params = {
        "objective": "dual",
        "train": {"seed": 3, "distil": {"loss": "kl"}},
        "until": [1, 3],
        "lora": None,
    }
    written = plain(job(params, tmp_path=tmp_path).params)
    assert (written["until"], written["normalize"], written["train"]["lr"]) == ([1, 3], False, 1e-5)
    assert plain(job(written, tmp_path=tmp_path).params) == written
