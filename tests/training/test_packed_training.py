"""Packed training against padded: loss and every gradient, whatever the objective, cached gradients included."""

import pyarrow.parquet as pq
import pytest
import torch

from tandem.config.settings import Execution
from tandem.models.acceleration import accelerate
from tandem.training.forward import Budget
from tandem.training.stage import run

pytestmark = pytest.mark.gpu

TRAIN = {"dual": {"in_batch": True}, "cross": {}, "joint": {}}


@pytest.mark.parametrize("graph_tokens", [1, 1 << 20])
@pytest.mark.parametrize("name", TRAIN)
def test_packed_equals_padded(make_objective, gradients, batch, name, graph_tokens):
    results = []
    for how in ("padded", "packed"):
        objective = make_objective(name, Budget(128, graph_tokens), torch.float64, **TRAIN[name])
        accelerate(objective.models, Execution(attention=how), 128, "fp32", training=True)
        assert {model.packed for model in objective.models.values()} == {
            128 if how == "packed" else None
        }
        results.append(gradients(objective, batch))
    (padded, padded_grads), (packed, packed_grads) = results
    assert packed == pytest.approx(padded, rel=1e-10)
    assert padded_grads.keys() == packed_grads.keys()
    for parameter, gradient in padded_grads.items():
        assert torch.allclose(gradient, packed_grads[parameter], atol=1e-10, rtol=1e-10), parameter


def test_cached_gradients_meet_the_same_dropout_in_packed_rows(make_objective, gradients, batch):
    results = []
    for graph_tokens in (1, 1 << 20):
        objective = make_objective("dual", Budget(128, graph_tokens), torch.float64, dropout=0.2)
        accelerate(objective.models, Execution(attention="packed"), 128, "fp32", training=True)
        results.append(gradients(objective, batch))
    (cached, cached_grads), (whole, whole_grads) = results
    assert cached == pytest.approx(whole, rel=1e-10)
    for parameter, gradient in cached_grads.items():
        assert torch.allclose(gradient, whole_grads[parameter], atol=1e-10, rtol=1e-10), parameter


def test_the_stage_trains_packed_and_ends_the_same(model_job, tmp_path):
    curves = []
    for attention in ("padded", "packed"):
        train = {"dropout": 0.0, "steps": 3, "validate_every": None, "choose": "last"}
        job = model_job("joint", tmp_path / f"{attention}-0123456789", train, attention=attention)
        run(job)
        names, values = (
            pq.read_table(job.out / "log.parquet")[column].to_pylist()
            for column in ("name", "value")
        )
        curves.append(
            [
                value
                for name, value in zip(names, values, strict=True)
                if name in ("loss", "gradient_norm")
            ]
        )
        assert "packed" not in (job.out / "cross" / "config.json").read_text()
    assert len(curves[0]) == 6
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)
