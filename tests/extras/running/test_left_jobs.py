"""Slurm jobs that a killed Snakemake has left are cancelled, those of one that runs are not."""

import os
import subprocess
import sys

import pytest

from tandem.extras.running.left_jobs import clear

RUNS = """
import sys
from pathlib import Path
from tandem.extras.running.left_jobs import clear
clear(Path.cwd())
print("runs", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """The file of what slurm is told to cancel; until it is there, job 4711 of the current folder is in the queue."""
    commands = tmp_path / "bin"
    commands.mkdir()
    told = tmp_path / "told"
    queue = f"[ -e {told} ] || echo '4711|rule_train_wildcards_x|{tmp_path}'"
    for name, line in (("squeue", queue), ("scancel", f"echo $@ >> {told}")):
        (commands / name).write_text(f"#!/bin/sh\n{line}\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return told


def test_jobs_of_a_killed_run_are_cancelled_and_those_of_a_living_one_are_not(told, tmp_path):
    told.touch()  # the other one finds an empty queue
    line = [sys.executable, "-c", RUNS]
    other = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "runs\n"
    told.unlink()
    clear(tmp_path)
    assert not told.exists()
    other.kill()
    other.communicate()
    clear(tmp_path)
    assert told.read_text() == "4711\n"
