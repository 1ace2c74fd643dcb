"""Slurm jobs that a killed Snakemake has left are cancelled, those of one that runs are not."""

import os
import subprocess
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest

from tandem.extras.running.left_jobs import clear, keep_finished

RUNS = """
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from base64 import urlsafe_b64decode, urlsafe_b64encode
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


def test_what_is_whole_is_no_longer_marked_as_incomplete(tmp_path):
    whole, begun = (tmp_path / "results/d/checkpoint" / key for key in ("a.1-01", "a.2-02"))
    for folder in (whole, begun):
        (folder / "state").mkdir(parents=True)
    (whole / "stage.json").touch()
    marks = tmp_path / ".snakemake/incomplete"
    marks.mkdir(parents=True)
    for folder in (whole, begun):
        for name in ("stage.json", "state"):
            path = str((folder / name).relative_to(tmp_path))
            (marks / urlsafe_b64encode(path.encode()).decode()).touch()
    keep_finished(tmp_path)
    left = [urlsafe_b64decode(mark.name).decode() for mark in marks.iterdir()]
    assert sorted(left) == [
        f"results/d/checkpoint/a.2-02/{name}" for name in ("stage.json", "state")
    ]
