"""Packed training against padded: loss and every gradient, whatever the objective, cached gradients included."""

import pyarrow.parquet as pq
import pytest
import torch

from tandem.config.execution import Execution
from tandem.models.acceleration import accelerate
from tandem.training.forward import Budget
from tandem.training.stage import run

TRAIN = {"dual": {"in_batch": True}, "cross": {}, "joint": {}}


@pytest.mark.parametrize("graph_tokens", [1, 1 << 20])
@pytest.mark.parametrize("name", TRAIN)
def test_packed_equals_padded(make_objective, gradients, batch, name, graph_tokens):
    found = []
    for how in ("padded", "packed"):
        objective = make_objective(name, Budget(128, graph_tokens), torch.float64, **TRAIN[name])
        accelerate(objective.models, Execution(attention=how), 128, "fp32", training=True)
        assert {model.packed for model in objective.models.values()} == {128 if how == "packed" else None}
        found.append(gradients(objective, batch))
    (padded, one), (packed, other) = found
    assert packed == pytest.approx(padded, rel=1e-10)
    assert one.keys() == other.keys()
    for parameter, gradient in one.items():
        assert torch.allclose(gradient, other[parameter], atol=1e-10, rtol=1e-10), parameter


def test_cached_gradients_meet_the_same_dropout_in_packed_rows(make_objective, gradients, batch):
    found = []
    for graph_tokens in (1, 1 << 20):
        objective = make_objective("dual", Budget(128, graph_tokens), torch.float64, dropout=0.2)
        accelerate(objective.models, Execution(attention="packed"), 128, "fp32", training=True)
        found.append(gradients(objective, batch))
    (cached, one), (whole, other) = found
    assert cached == pytest.approx(whole, rel=1e-10)
    for parameter, gradient in one.items():
        assert torch.allclose(gradient, other[parameter], atol=1e-10, rtol=1e-10), parameter


def test_the_stage_trains_packed_and_ends_the_same(model_job, tmp_path):
    made = []
    for attention in ("padded", "packed"):
        train = {"dropout": 0.0, "steps": 3, "validate_every": None, "choose": "last"}
        job = model_job("joint", tmp_path / f"{attention}-0123456789", train, attention=attention)
        run(job)
        names, values = (pq.read_table(job.out / "log.parquet")[column].to_pylist() for column in ("name", "value"))
        made.append([value for name, value in zip(names, values, strict=True) if name in ("loss", "gradient_norm")])
        assert "packed" not in (job.out / "cross" / "config.json").read_text()
    assert len(made[0]) == 6
    assert made[1] == pytest.approx(made[0], rel=1e-4)
