"""Killed and resumed equals undisturbed, byte for byte."""

import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from tandem.artifact import open_artifact, sha256, writing
from tandem.data.runs import iter_run, write_run

TRAIN = {
    "queries_per_batch": 4,
    "list_size": 4,
    "epochs": 1.0,
    "steps": 6,
    "lr": 1e-3,
    "optimizer": "adamw",
    "weight_decay": 0.01,
    "warmup": 0.2,
    "schedule": "linear",
    "clip": 1.0,
    "dropout": 0.1,
    "precision": "fp32",
    "seed": 5,
    "select": "best",
    "validate_every": 2,
    "validation_queries": 10,
    "validation_depth": 5,
}
JOINT = {"semantics": "paper", "teacher": "dynamic", "supervision": "listwise", "in_batch": False}
OBJECTIVES = {
    "dual": TRAIN | {"in_batch": True, "loss": "listwise"},
    "cross": TRAIN | {"loss": "listwise", "select": "last"},
    "joint": TRAIN | JOINT,
}
TOWERS = {"shared": True, "pooling": "mean", "normalize": False, "temperature": 1.0}


@pytest.fixture(scope="session")
def runs(results, make_job, dataset):
    """Runs of the train and dev queries: every query's own subject's passages and the next subject's."""
    from tandem.data.collection import Collection

    collection, made = Collection(dataset), {}
    ids = collection.doc_ids().to_pylist()
    for split in ("train", "dev"):
        out = results / "bm25" / f"bm25.{split}-00000000a{'td'.index(split[0])}"
        job = make_job("bm25", out, {"depth": 9, "split": split}, {"dataset": dataset})
        with writing(job) as draft:
            ranked = (
                (query, [ids[(3 * i + j) % 60] for j in range(9)], np.arange(9, 0, -1, dtype=np.float32))
                for i, query in enumerate(collection.queries(split))
            )
            write_run(draft.path("run.trec"), ranked, job.key)
        made[split] = open_artifact(out)
        assert len(list(iter_run(out / "run.trec"))) == 20
    return made


@pytest.fixture(scope="session")
def lists(results, make_job, dataset, tokens, runs):
    from tandem.candidates.stage import run

    params = {"first_rank": 1, "depth": 9, "negatives": None, "split": "train", "seed": 1}
    inputs = {"dataset": dataset, "run": runs["train"], "tokens": tokens}
    job = make_job("candidates", results / "candidates" / "bm25-00000000b0", params, inputs)
    run(job)
    return open_artifact(job.out)


@pytest.fixture(scope="session")
def model_job(make_job, dataset, tokens, encoder, lists, runs):
    """`model_job(objective, out, **execution)`."""

    def make(objective, out, **execution):
        inputs = {"dataset": dataset, "tokens": tokens, "candidates": lists, "validation": runs["dev"]}
        if objective == "joint":
            inputs |= {"cross_tokens": tokens, "retriever": encoder, "reranker": encoder}
        else:
            inputs["start"] = encoder
        params = {"objective": objective, "train": OBJECTIVES[objective]}
        params |= {"pooling": "mean"} if objective == "cross" else TOWERS
        return make_job(
            "model", out, params, inputs, {"micro_tokens": 200, "graph_tokens": 400, "workers": 1} | execution
        )

    return make


def weights(folder):
    return {str(p.relative_to(folder)): sha256(p) for p in sorted(folder.rglob("*.safetensors"))}


def curves(folder):
    """What was logged, the clock's part left out."""
    rows = pq.read_table(folder / "log.parquet").to_pylist()
    assert {row["step"] for row in rows if row["name"] == "tokens_per_second"} == set(range(1, TRAIN["steps"] + 1))
    return [row for row in rows if row["name"] != "tokens_per_second"]


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
    from tandem.training.loop import Training

    step = Training.step
    for broken in range(1, TRAIN["steps"]):

        def stop(self, optimizer, batch, lr, number, broken=broken):
            if number == broken:
                raise KeyboardInterrupt
            return step(self, optimizer, batch, lr, number)

        out = tmp_path / f"{objective}-{broken:010d}"
        monkeypatch.setattr(Training, "step", stop)
        with pytest.raises(KeyboardInterrupt):
            stage.run(model_job(objective, out, checkpoint_seconds=0))
        assert not (out / "stage.json").exists()
        monkeypatch.setattr(Training, "step", step)
        stage.run(model_job(objective, out))
        there = undisturbed / f"{objective}-0000000000"
        assert weights(out) == weights(there)
        assert curves(out) == curves(there)
        assert not (out / "checkpoints").exists()


def test_killed_by_the_system(model_job, command, undisturbed, tmp_path):
    job = model_job("joint", tmp_path / "joint-0123456789", checkpoint_seconds=0)
    line = [sys.executable, "-m", "tandem", "model", *command(job)]
    running = subprocess.Popen(line, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not list((job.out / "checkpoints").glob("step-*/state.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    assert not (job.out / "stage.json").exists()
    done = subprocess.run(line, stderr=subprocess.PIPE, text=True, check=True)
    assert "resumes at step" in done.stderr
    assert weights(job.out) == weights(undisturbed / "joint-0000000000")


def test_splitting_the_work_differently_trains_the_same_model(model_job, undisturbed, tmp_path):
    """Execution is not meaning; without dropout, sums in another order differ in the last digits alone."""
    from safetensors.numpy import load_file

    from tandem.training.stage import run

    made = {}
    for name, graph_tokens in (("whole", 1 << 20), ("parts", 50)):
        job = model_job("dual", tmp_path / f"{name}-0123456789", micro_tokens=1 << 20, graph_tokens=graph_tokens)
        job.params["train"] = job.params["train"] | {"dropout": 0.0, "steps": 2}
        run(job)
        made[name] = load_file(job.out / "dual/shared/model.safetensors")
    for key, value in made["whole"].items():
        np.testing.assert_allclose(made["parts"][key], value, atol=2e-5)


def test_the_best_weights_are_kept(undisturbed):
    import json

    for objective in ("dual", "joint"):
        folder = undisturbed / f"{objective}-0000000000"
        values = {row["step"]: row["value"] for row in curves(folder) if row["name"] == "dev RR@10 (dual)"}
        assert set(values) == {2, 4, 6}
        told = json.loads((folder / "model.json").read_text())["best"]
        assert told == [max(values.values()), min(s for s, v in values.items() if v == max(values.values()))]
