"""GPUs leased by real processes that contend for made-up ids."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from tandem.cluster import scheduler
from tandem.errors import UserError

# Leases, says when and what it got, holds it for a while, and says when it lets go.
HOLDER = """
import os, sys, time
from tandem.cluster.scheduler import lease
count, seconds = int(sys.argv[1]), float(sys.argv[2])
lease(count, "job")
print(time.monotonic(), os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
time.sleep(seconds)
print(time.monotonic(), flush=True)
"""


@pytest.fixture
def hold(tmp_path):
    """`hold(count, seconds, **environment)`: a process that leases so many of four ids for so long."""
    started = []

    def start(count, seconds, **environment):
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID")
        }
        variables = (
            inherited
            | {"TANDEM_LEASES": str(tmp_path / "leases"), "TANDEM_GPUS": "0,1,2,3"}
            | environment
        )
        line = [sys.executable, "-c", HOLDER, str(count), str(seconds)]
        started.append(
            subprocess.Popen(
                line, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def unset(monkeypatch):
    """An environment that says nothing about GPUs, put back afterwards."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TANDEM_GPUS", "SLURM_JOB_ID"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def got(process):
    """When a process got its lease, and the ids."""
    moment, ids = process.stdout.readline().split()
    return float(moment), ids.split(",")


def waiting(tmp_path, count, timeout=120):
    """Return when so many processes stand in the queue."""
    deadline = time.monotonic() + timeout
    while len(list((tmp_path / "leases/queue").glob("[0-9]*"))) != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_no_id_is_leased_twice_at_a_time(hold):
    counts = [1, 2, 1, 3, 1, 2, 4, 1]
    processes = [hold(count, 0.3) for count in counts]
    spans = []
    for count, process in zip(counts, processes, strict=True):
        began, ids = got(process)
        assert len(set(ids)) == count
        assert set(ids) <= set("0123")
        ended = float(process.stdout.readline())
        spans += [(name, began, ended) for name in ids]
        assert process.wait() == 0
    assert len(spans) == sum(counts)
    for name in "0123":
        mine = sorted((began, ended) for known, began, ended in spans if known == name)
        assert all(before[1] <= after[0] for before, after in pairwise(mine))


def test_a_lease_ends_with_its_process_even_by_sigkill(hold, tmp_path):
    first = hold(4, 60)
    assert got(first)[1] == ["0", "1", "2", "3"]
    second = hold(1, 0)
    assert "job · waits for 1 of 4 GPUs · 0 s" in second.stderr.readline()
    first.send_signal(signal.SIGKILL)
    assert len(got(second)[1]) == 1
    assert second.wait() == 0


def test_who_waits_longest_is_next_and_the_dead_hold_nobody_up(hold, tmp_path):
    """A small request does not overtake a large one, though it could be served at once."""
    running = hold(3, 60)
    got(running)
    large = hold(4, 0)
    waiting(tmp_path, 1)
    small = hold(1, 0)
    waiting(tmp_path, 2)
    assert small.poll() is None
    running.kill()
    large_at, small_at = got(large)[0], got(small)[0]
    assert large_at < small_at
    running = hold(3, 60)
    got(running)
    dead = hold(4, 0)
    waiting(tmp_path, 1)
    last = hold(1, 0)
    waiting(tmp_path, 2)
    dead.kill()
    assert len(got(last)[1]) == 1
    assert last.wait() == 0
    assert not list((tmp_path / "leases/queue").iterdir())


def test_a_schedulers_choice_stands(unset, monkeypatch, tmp_path):
    monkeypatch.setenv("TANDEM_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("TANDEM_GPUS", "0,1,2,3")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    for visible, count in (("5", 1), ("GPU-8f,GPU-9a", 2), ("", 1), ("-1", 2), ("NoDevFiles", 1)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        scheduler.lease(count, "job")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == visible
    assert not (tmp_path / "leases").exists()


def test_jobs_within_one_allocation_share_it_out(hold, tmp_path):
    """Two ids given by slurm, two jobs of one GPU each; another allocation that counts from 0 too is another matter."""
    mine = {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_ID": "77"}
    first, second, other = (
        hold(1, 5, **mine),
        hold(1, 5, **mine),
        hold(1, 0, **mine | {"SLURM_JOB_ID": "78"}),
    )
    assert sorted(got(first)[1] + got(second)[1]) == ["0", "1"]
    assert got(other)[1] == ["0"]


def test_a_machine_without_gpus_leases_none(unset, monkeypatch, tmp_path):
    monkeypatch.setenv("TANDEM_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(scheduler, "DEVICES", tmp_path)
    scheduler.lease(2, "job")
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert not (tmp_path / "leases").exists()


def test_without_nvidia_smi_gpus_are_counted_by_their_device_files(unset, monkeypatch, tmp_path):
    for name in ("nvidia3", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (tmp_path / name).touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(scheduler, "DEVICES", tmp_path)
    assert scheduler.list_offered({}) == ["0", "1"]  # CUDA counts those that the container has
    assert scheduler.list_offered({"TANDEM_GPUS": "3"}) == ["3"]


@pytest.fixture
def listing(unset, monkeypatch, tmp_path):
    """An nvidia-smi that lists two GPUs, first on the path."""
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    gpus = [
        f"GPU {i}: NVIDIA H200 (UUID: GPU-1{i}aa)\n  MIG 1g.18gb Device 0: (UUID: MIG-2{i}bb)"
        for i in (0, 1)
    ]
    listed = "\n".join(gpus)
    program.write_text(f"#!/bin/sh\n[ \"$1\" = -L ] && echo '{listed}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TANDEM_LEASES", str(tmp_path / "leases"))


def test_ids_are_those_of_nvidia_smi(listing, monkeypatch):
    assert scheduler.list_offered(os.environ) == ["0", "1"]
    assert scheduler.list_offered({"TANDEM_GPUS": "GPU-11aa, MIG-22bb,GPU-11aa"}) == [
        "GPU-11aa",
        "MIG-22bb",
    ]
    with pytest.raises(
        UserError, match=r"^train: execution.devices is 3, but this machine has 2 GPUs \(0, 1\)$"
    ):
        scheduler.lease(3, "train")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(
        UserError, match=r"devices is 2, but CUDA_VISIBLE_DEVICES names 1 GPUs \(1\)$"
    ):
        scheduler.lease(2, "train")


def test_the_first_free_ids_are_taken_and_counted_as_the_driver_does(
    listing, monkeypatch, tmp_path
):
    (tmp_path / "leases").mkdir()
    with (tmp_path / "leases/0.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
        scheduler.lease(1, "job")
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"]) == (
        "1",
        "PCI_BUS_ID",
    )


def test_a_folder_that_cannot_be_written_is_named(unset, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TANDEM_LEASES", str(tmp_path / "file"))
    monkeypatch.setenv("TANDEM_GPUS", "0,1")
    with pytest.raises(
        UserError,
        match=r"file/queue: cannot be locked \(Not a directory\); set TANDEM_LEASES to a folder",
    ):
        scheduler.lease(1, "job")
