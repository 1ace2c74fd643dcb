"""What several processes compute in a step, written by them and read by a test; and a training the system kills."""

import json
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import torch
from comparing import assert_same
from safetensors.torch import load_file, save_file

from tandem.training.distributed import World
from tandem.training.forward import Seeds


def compute_step(objective, batch):
    """Reported values and the gradient of every parameter, of an objective's step over a batch."""
    world = objective.world
    process = () if world.size == 1 else (world.rank,)
    values = world.sum_values(objective.backward(batch, Seeds((1, 2, *process))))
    world.sum_gradients(objective.models)
    return values, {
        path: p.grad for path, p in objective.models.named_parameters() if p.grad is not None
    }


def compute_cases(folder, compute, names, counts, budgets):
    """Write `compute(name, budget, count, world)` of every case, in this process of several.

    Args:
        budgets: name → how much is computed at once; a case is `<name>|<count>|<budget's name>`.
    """
    torch.set_num_threads(1)
    computed = {}
    with World.current().joined() as world:
        for name in names:
            for count in counts:
                for size, budget in budgets.items():
                    computed[f"{name}|{count}|{size}"] = compute(name, budget, count, world)
        write_results(folder, world.rank, computed)


def write_results(folder, rank, results):
    """Write a process's `results`, values and gradients by case, to `<rank>.json` and `<rank>.safetensors`."""
    gradients = {
        f"{case}|{path}": g.contiguous().clone()
        for case, (_, own) in results.items()
        for path, g in own.items()
    }
    save_file(gradients, folder / f"{rank}.safetensors")
    (folder / f"{rank}.json").write_text(
        json.dumps({case: values for case, (values, _) in results.items()})
    )


def read_results(folder):
    """The `results` of each process that wrote to a folder, by rank."""
    return [_read_result(path) for path in sorted(folder.glob("*.json"))]


def _read_result(path):
    values = json.loads(path.read_text())
    results = {case: (values[case], {}) for case in values}
    for name, gradient in load_file(path.with_suffix(".safetensors")).items():
        case, _, parameter = name.rpartition("|")
        results[case][1][parameter] = gradient
    return results


def run_program(program, folder):
    """Run a test's program, which writes to a folder, with this process's import path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, program, str(folder)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def run_together(cases, folder):
    """What each of the processes that a module of cases starts as a program reports, and its gradients."""
    run_program(cases.__file__, folder)
    return read_results(folder)


def assert_two_equal_one(together, name, cases):
    """Two processes have the loss and gradients of one big batch, also with fewer queries than processes."""
    assert len(together) == 2
    for count in cases.COUNTS:
        whole = cases.results(name, cases.BIG, count)
        for size in ("big", "small"):
            for computed in together:
                assert_same(computed[f"{name}|{count}|{size}"], whole)


def kill_and_resume(job, words, run, capfd):
    """Train by `tandem <words>`, killed by the system once a checkpoint is there, and go on by `run`, here."""
    line = [sys.executable, "-m", "tandem", *words]
    running = subprocess.Popen(line, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while not list((job.out / "checkpoints").glob("step-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    run(job)
    assert "resumes at step" in capfd.readouterr().err


def read_curve(folder):
    """What a training logged, the clock's part left out."""
    rows = pq.read_table(folder / "log.parquet").to_pylist()
    return [row for row in rows if row["name"] != "tokens_per_second"]
