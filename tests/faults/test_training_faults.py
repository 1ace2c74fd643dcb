"""A training whose numbers overflow stops with the step and the queries, and hands over no such weights."""

import json

import pytest
from faults_kit import Copy

from tandem.plan.graph import Stage


@pytest.fixture
def overflowing(copied: Copy):
    """`overflowing(lr)`: the cross-encoder's stage with another learning rate, as an override plans it."""

    def make(lr: float) -> Stage:
        stage = copied.named("model", "ce_bm25neg")
        params = {**stage.values, "train": {**stage.values["train"], "lr": lr}}
        variant = Stage(
            stage.kind, stage.dataset, stage.name, params, stage.upstream, stage.execution
        )
        copied.same[variant.manifest] = stage.manifest
        return variant

    return make


def test_a_loss_that_overflows_stops_with_step_and_queries_and_a_saved_state(copied, overflowing):
    stage = overflowing(1e36)
    code, output = copied.run(stage)
    assert code == 1, output
    assert "Traceback" not in output
    line = output.strip().splitlines()[-1]
    assert f"train {stage.key}: " in line
    assert " at step " in line
    assert "(queries train-" in line
    folder = copied.folder / stage.folder
    assert not (folder / "stage.json").exists()
    assert not list(folder.rglob("model.safetensors"))
    (state,) = folder.glob("checkpoints/step-*/state.json")
    assert f"at step {json.loads(state.read_text())['step'] + 1} " in line
