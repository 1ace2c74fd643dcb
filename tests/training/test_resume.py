"""Killed and resumed equals undisturbed, byte for byte."""

import json
import os
import random
import shutil
import subprocess
import sys

import killed as program
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from comparing import interrupt
from ranks import skip_without_gpus
from several_processes import read_curve
from tiny_stages import OBJECTIVES, TRAIN

from tandem.extras.validation.validation_points import choose_point, read_points
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256

pytestmark = pytest.mark.gpu


def weights(folder):
    return {str(p.relative_to(folder)): sha256(p) for p in sorted(folder.rglob("*.safetensors"))}


def curves(folder):
    """What was logged, the clock's part left out, which must be there at every step."""
    rows = pq.read_table(folder / "log.parquet").to_pylist()
    assert {row["step"] for row in rows if row["name"] == "tokens_per_second"} == set(
        range(1, TRAIN["steps"] + 1)
    )
    return read_curve(folder)


@pytest.fixture(scope="session")
def undisturbed(model_job, tmp_path_factory):
    from tandem.training.stage import run

    folder = tmp_path_factory.mktemp("undisturbed")
    for objective in OBJECTIVES:
        run(model_job(objective, folder / f"{objective}-0000000000"))
    return folder


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_interrupted_at_every_step(objective, model_job, undisturbed, tmp_path, monkeypatch):
    from tandem.training import stage

    for broken in range(1, TRAIN["steps"]):
        out = tmp_path / f"{objective}-{broken:010d}"
        job = model_job(objective, out, checkpoint_seconds=0)
        interrupt(lambda job=job: stage.run(job), broken, monkeypatch)
        assert not (out / "stage.json").exists()
        stage.run(model_job(objective, out))
        there = undisturbed / f"{objective}-0000000000"
        assert weights(out) == weights(there)
        assert curves(out) == curves(there)
        assert not (out / "checkpoints").exists()


def test_late_interaction_ends_with_the_same_bytes(model_job, tmp_path, monkeypatch):
    from tandem.training import stage

    shape = {"representation": {"type": "multi", "dim": 8, "query_tokens": 12}, "normalize": True}
    stage.run(model_job("dual", tmp_path / "multi-0000000000", shape=shape))
    job = model_job("dual", tmp_path / "multi-0000000003", shape=shape, checkpoint_seconds=0)
    interrupt(lambda: stage.run(job), 3, monkeypatch)
    stage.run(job)
    assert "dual/shared/1_Dense/model.safetensors" in weights(job.out)
    assert weights(job.out) == weights(tmp_path / "multi-0000000000")
    assert curves(job.out) == curves(tmp_path / "multi-0000000000")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_batches_side_by_side_end_with_the_same_bytes(objective, model_job, tmp_path, monkeypatch):
    """Without dropout each of two threads computes micro-batches of its own, whichever is done first."""
    from tandem.training import stage

    train = {"dropout": 0.0}
    monkeypatch.setattr(stage, "use_workers", torch.set_num_threads)
    whole = model_job(objective, tmp_path / f"{objective}-0000000001", train, workers=2)
    job = model_job(
        objective, tmp_path / f"{objective}-0000000002", train, workers=2, checkpoint_seconds=0
    )
    try:
        stage.run(whole)
        interrupt(lambda: stage.run(job), 3, monkeypatch)
        stage.run(job)
    finally:
        torch.set_num_threads(1)
    assert weights(job.out) == weights(whole.out)
    assert curves(job.out) == curves(whole.out)


@pytest.fixture(scope="session")
def killed(model_job, command, tmp_path_factory):
    """Trainings of every objective by one and two processes, each killed twice; and by two without a kill.

    `TANDEM_KILLS=20` kills each of them so many times.
    """
    skip_without_gpus(2)
    folder, rng, plan = tmp_path_factory.mktemp("killed"), random.Random(7), []
    each = int(os.environ.get("TANDEM_KILLS", "2"))

    def add(objective, size, kills, name):
        job = model_job(objective, folder / f"{name}-0123456789", checkpoint_seconds=0)
        plan.append({"words": command(job), "size": size, "kills": kills})

    for objective in OBJECTIVES:
        add(objective, 2, [], f"{objective}-2-undisturbed")
        for size in (1, 2):
            add(
                objective,
                size,
                sorted(rng.choices(range(1, TRAIN["steps"]), k=each)),
                f"{objective}-{size}",
            )
    (folder / "plan.json").write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, program.__file__, str(folder / "plan.json")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_killed_by_the_system(objective, size, killed, undisturbed):
    folder = killed / f"{objective}-{size}-0123456789"
    there = (
        undisturbed / f"{objective}-0000000000"
        if size == 1
        else killed / f"{objective}-2-undisturbed-0123456789"
    )
    assert weights(folder) == weights(there)
    assert curves(folder) == curves(there)
    assert not (folder / "checkpoints").exists()
    died = json.loads((killed / f"{folder.name}.killed").read_text())
    assert died == sorted(died)
    assert died[-1] < TRAIN["steps"]


def test_splitting_the_work_differently_trains_the_same_model(model_job, undisturbed, tmp_path):
    """Execution is not meaning; without dropout, sums in another order differ in the last digits alone."""
    from safetensors.numpy import load_file

    from tandem.training.stage import run

    tensors = {}
    for name, graph_tokens in (("whole", 1 << 20), ("parts", 64)):
        folder, train = tmp_path / f"{name}-0123456789", {"dropout": 0.0, "steps": 2}
        job = model_job("dual", folder, train, micro_tokens=1 << 20, graph_tokens=graph_tokens)
        run(job)
        tensors[name] = load_file(job.out / "dual/shared/model.safetensors")
    for key, value in tensors["whole"].items():
        np.testing.assert_allclose(tensors["parts"][key], value, atol=2e-5)


def test_the_best_weights_are_kept(undisturbed):
    for objective in ("dual", "joint"):
        folder = undisturbed / f"{objective}-0000000000"
        history = read_points(tuple(row.values()) for row in curves(folder))
        assert [point.step for point in history] == [0, 2, 4, 6]
        best = choose_point(history)
        assert json.loads((folder / "model.json").read_text())["best"] == [best.mean, best.step]


def cut(path):
    """Leave the first half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    """Change one bit near the end of a file."""
    content = bytearray(path.read_bytes())
    content[-2] ^= 0x10
    path.write_bytes(content)


@pytest.fixture(scope="module")
def interrupted(model_job, tmp_path_factory):
    """A training of a dual encoder that dev chooses, after three steps."""
    from tandem.training import stage

    out = tmp_path_factory.mktemp("interrupted") / "dual-0000000000"
    with pytest.MonkeyPatch.context() as patch:
        job = model_job("dual", out, checkpoint_seconds=0)
        interrupt(lambda: stage.run(job), 3, patch)
    return out


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("step-*/weights.safetensors", cut),
        ("step-*/optimizer.safetensors", flip),
        ("step-*/optimizer.safetensors", os.remove),
        ("step-*/state.json", cut),
        ("best-*", flip),
    ],
)
def test_a_damaged_checkpoint_is_not_continued_from(
    name, damage, model_job, undisturbed, interrupted, tmp_path, capsys
):
    from tandem.training import stage

    out = tmp_path / "dual-0000000000"
    shutil.copytree(interrupted, out)
    (out / "checkpoints/.step-00000009.4711").mkdir()  # of a process that was killed while it wrote
    damage(max((out / "checkpoints").glob(name)))
    stage.run(model_job("dual", out))
    assert "anew" in capsys.readouterr().err
    assert weights(out) == weights(undisturbed / "dual-0000000000")
    assert curves(out) == curves(undisturbed / "dual-0000000000")
    assert not (out / "checkpoints").exists()


def test_a_checkpoint_of_other_inputs_is_not_continued_from(
    model_job, make_job, dataset, tokens, runs, lists, tmp_path, monkeypatch
):
    """The lists were made again under the same key, with other bytes."""
    from tandem.negatives.candidates import run
    from tandem.training import stage

    params = {"first_rank": 1, "depth": 9, "negatives": 3, "split": "train", "seed": 2}
    inputs = {"dataset": dataset, "run": runs["train"], "tokens": tokens}
    again = make_job("candidates", tmp_path / "again" / lists.folder.name, params, inputs)
    run(again)
    more = {"candidates": open_artifact(again.out)}
    assert more["candidates"].manifest.checksums != lists.manifest.checksums
    stage.run(model_job("dual", tmp_path / "fresh-0123456789", more=more))
    job = model_job("dual", tmp_path / "dual-0123456789", checkpoint_seconds=0)
    interrupt(lambda: stage.run(job), 3, monkeypatch)
    anew = model_job("dual", job.out, more=more, checkpoint_seconds=0)
    interrupt(lambda: stage.run(anew), 2, monkeypatch)
    assert [path.name for path in (job.out / "checkpoints").glob("step-*")] == ["step-00000002"]
    stage.run(model_job("dual", job.out, more=more))
    assert weights(job.out) == weights(tmp_path / "fresh-0123456789")
    assert curves(job.out) == curves(tmp_path / "fresh-0123456789")
