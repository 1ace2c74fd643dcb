"""A training on two devices by its own command: the model of one process, and the bytes of two nodes."""

import os
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from tandem.store.artifact import open_artifact
from tandem.store.files import sha256
from tandem.training.distributed import World

WEIGHTS = "dual/shared/model.safetensors"


def logged(folder):
    """Loss, gradient norm and learning rate of each step."""
    rows = pq.read_table(folder / "log.parquet").to_pylist()
    names = ("loss", "gradient_norm", "lr")
    return {(row["step"], row["name"]): row["value"] for row in rows if row["name"] in names}


@pytest.fixture
def start(command, tmp_path):
    """`start(job, **environment)`: the job's command line, running; ranks find no GPU."""
    started = []

    def run(job, **environment):
        line = [sys.executable, "-m", "tandem", "model", *command(job)]
        variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"} | environment
        started.append(subprocess.Popen(line, env=variables, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def dual(model_job, tmp_path):
    """`dual(name, **execution)`: four steps with in-batch negatives, which ranks exchange, and no dropout."""

    def make(name, **execution):
        train = {"dropout": 0.0, "steps": 4, "choose": "last"}
        return model_job("dual", tmp_path / f"{name}-0123456789", train, **execution)

    return make


@pytest.fixture
def slurm(tmp_path):
    """The environment of a slurm job of two nodes, both of them this machine."""
    program = tmp_path / "bin/scontrol"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\n[ "$*" = "show hostnames this,this" ] && printf "localhost\\nlocalhost\\n"\n'
    )
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {"PATH": path, "SLURM_JOB_NODELIST": "this,this", "SLURM_JOB_ID": str(os.getpid())}


def test_two_devices_and_two_nodes_train_what_one_process_trains(dual, start, slurm):
    from tandem.training.stage import run

    alone, devices, nodes = (
        dual("alone"),
        dual("devices", devices=2),
        dual("nodes", devices=1, nodes=2),
    )
    processes = [start(devices)]
    processes += [start(nodes, **slurm, SLURM_NODEID=str(node)) for node in range(2)]
    run(alone)
    for process in processes:
        errors = process.communicate(timeout=120)[1]
        assert process.returncode == 0, errors
        assert errors.count("took") == (process is not processes[2])  # the first rank speaks
    assert sha256(devices.out / WEIGHTS) == sha256(nodes.out / WEIGHTS)
    single, double = (logged(job.out) for job in (alone, devices))
    assert len(single) == 3 * 4
    assert double == pytest.approx(single, rel=1e-4)
    single, double = (load_file(job.out / WEIGHTS) for job in (alone, devices))
    for name, value in single.items():
        # Adam scales up gradients that are nothing but rounding, such as that of a key's bias, which softmax cancels.
        np.testing.assert_allclose(
            double[name], value, atol=1e-2 if name.endswith("key.bias") else 2e-4, err_msg=name
        )
    assert open_artifact(devices.out).manifest.execution["devices"] == 2


def test_a_rank_that_fails_ends_without_the_others(monkeypatch):
    """nccl takes leave only when what was begun together has been done, and the others wait for this rank."""
    calls = []
    monkeypatch.setattr(
        "torch.distributed.init_process_group", lambda *_, **options: calls.append(options["rank"])
    )
    monkeypatch.setattr(
        "torch.distributed.destroy_process_group", lambda: calls.append("destroyed")
    )
    with World(0, 2).joined():
        pass
    with pytest.raises(ValueError, match="diverged"), World(1, 2).joined():
        raise ValueError("diverged")
    assert calls == [0, "destroyed", 1]


def test_no_bit_depends_on_how_threads_wait_for_one_another(dual, start):
    ways = {
        "brief": {},
        "longer": {
            "GOMP_SPINCOUNT": "10000",
            "KMP_BLOCKTIME": "1",
            "OPENBLAS_THREAD_TIMEOUT": "20",
        },
        "none": {"OMP_WAIT_POLICY": "PASSIVE"},
    }
    hashes = set()
    for name, environment in ways.items():
        job = dual(name, workers=2)
        process = start(job, **environment)
        err = process.stderr.read()
        assert process.wait() == 0, err
        hashes.add(sha256(open_artifact(job.out).path(WEIGHTS)))
    assert len(hashes) == 1
