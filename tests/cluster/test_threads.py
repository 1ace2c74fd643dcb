"""How many cores a process may use, by its affinity and its control groups; how long idle threads of libraries spin."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tandem import ROOT
from tandem.cluster import threads
from tandem.cluster.threads import (
    WAITING,
    count_usable_cores,
    others_compute,
    sleep_at_once,
    wait_briefly,
)
from tandem.models.device import use_workers


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """`cgroups(own, files)`: this process' control groups, and files below /sys/fs/cgroup; four cores are allowed."""

    def make(own, files):
        for name, text in files.items():
            (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "cgroup" / name).write_text(text)
        (tmp_path / "own").write_text(own)

    monkeypatch.setattr(threads, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(threads, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    return make


V1 = "cpu/docker/ab/cpu.cfs_quota_us", "cpu/docker/ab/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/", {}, 4),
        ("0::/", {"cpu.max": "max 100000\n"}, 4),
        ("0::/", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/", {"cpu.max": "150000 100000\n"}, 2),  # with one thread half a core would lie idle
        ("0::/", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/", {"cpu.max": "800000 100000\n"}, 4),  # no more than its affinity allows
        (
            "0::/user.slice/job",
            {"user.slice/cpu.max": "100000 50000\n", "user.slice/job/cpu.max": "max 100000\n"},
            2,
        ),
        # a container's own group is its root
        ("0::/elsewhere/seen/from/outside", {"cpu.max": "300000 100000\n"}, 3),
        ("4:cpu,cpuacct:/docker/ab\n0::/", {V1[0]: "100000\n", V1[1]: "100000\n"}, 1),
        ("4:cpu,cpuacct:/docker/ab\n0::/", {V1[0]: "-1\n", V1[1]: "100000\n"}, 4),
        # it counts no time
        ("4:cpuset:/docker/ab\n0::/", {V1[0]: "100000\n", V1[1]: "100000\n"}, 4),
        ("0::/", {"cpu.max": "\n"}, 4),
        ("no control group", {"cpu.max": "100000 100000\n"}, 4),
    ],
)
def test_a_quota_counts_like_cores(own, files, cores, cgroups):
    cgroups(f"{own}\n", files)
    assert count_usable_cores() == cores


def test_without_control_groups_the_affinity_counts(cgroups):
    assert count_usable_cores() == 4


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_the_program_that_the_makefile_runs_counts_a_real_affinity():
    core = min(os.sched_getaffinity(0))
    line = [sys.executable, "-I", "-S", str(ROOT / "workflow/tandem/cluster/threads.py")]
    done = subprocess.run(
        line,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    assert done.stdout == "1\n"


def test_a_stage_computes_on_no_more_threads_than_it_has_cores(cgroups, monkeypatch, capsys):
    cgroups("0::/\n", {"cpu.max": "200000 100000\n"})
    before = torch.get_num_threads()
    try:
        use_workers(1)
        assert (torch.get_num_threads(), capsys.readouterr().err) == (1, "")
        use_workers(64)
        assert torch.get_num_threads() == 2
        assert "not 64" in capsys.readouterr().err
        torch.set_num_threads(3)
        use_workers(None)
        assert torch.get_num_threads() == 2
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
        use_workers(2)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ({}, WAITING),
        ({"GOMP_SPINCOUNT": "7"}, WAITING | {"GOMP_SPINCOUNT": "7"}),
        (
            {"OMP_WAIT_POLICY": "ACTIVE"},
            {
                "OMP_WAIT_POLICY": "ACTIVE",
                "OPENBLAS_THREAD_TIMEOUT": WAITING["OPENBLAS_THREAD_TIMEOUT"],
            },
        ),
    ],
)
def test_what_the_user_has_set_holds(before, expected):
    environment = dict(before)
    wait_briefly(environment)
    assert environment == expected


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (
            {},
            {
                "OMP_WAIT_POLICY": "PASSIVE",
                "OPENBLAS_THREAD_TIMEOUT": WAITING["OPENBLAS_THREAD_TIMEOUT"],
            },
        ),
        ({"GOMP_SPINCOUNT": "7"}, WAITING | {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "ACTIVE", **WAITING}, {"OMP_WAIT_POLICY": "ACTIVE", **WAITING}),
    ],
)
def test_beside_other_programs_threads_sleep_at_once_unless_something_is_set(before, expected):
    environment = dict(before)
    sleep_at_once(environment)
    assert environment == expected


def test_another_program_that_computes_is_noticed(tmp_path, monkeypatch):
    ticks = os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(threads, "STATISTICS", tmp_path / "stat")

    def compute_meanwhile(*shares: float) -> bool:
        """Whether it is noticed that cores 0, 1, 2 … were busy for so large a share of the time."""

        def write(passed: float) -> None:
            lines = [
                f"cpu{core} {1000 + round(ticks * passed * share)} 0 0 5000"
                for core, share in enumerate(shares)
            ]
            (tmp_path / "stat").write_text("\n".join(["cpu  9 9 9 9", *lines, "intr 12 3"]))

        write(0.0)
        monkeypatch.setattr("time.sleep", write)
        return others_compute()

    assert compute_meanwhile(1.0, 0.0)
    assert compute_meanwhile(0.4, 0.4)
    assert not compute_meanwhile(0.2, 0.1)
    assert not compute_meanwhile(0.0, 0.0, 1.0)  # a core that this process may not use


def test_every_copy_of_gnus_openmp_reads_how_long_to_spin():
    # torch has one, FAISS and scikit-learn have theirs: each prints its settings when it is loaded.
    script = "import runpy, sys; sys.argv[1:] = ['--version']; runpy.run_module('tandem', run_name='__main__')"
    script = f"try:\n  {script}\nexcept SystemExit: import torch, faiss"
    inherited = {
        name: value for name, value in os.environ.items() if name not in (*WAITING, threads._POLICY)
    }
    environment = inherited | {"OMP_DISPLAY_ENV": "VERBOSE"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    counts = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
    copies = {path.name for path in Path(torch.__file__).parent.glob("lib/libgomp*")}
    assert set(counts) == {WAITING["GOMP_SPINCOUNT"]}
    assert len(counts) >= 1 + len(copies)
