"""`top` on a real training: what it says while it runs, in slurm or not, and when its process is gone."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tandem import ROOT
from tandem.config.merging import gathered
from tandem.extras.plan import FullPlan


@pytest.fixture
def training(tiny_dag, tmp_path, monkeypatch):
    """The tiny dual encoder's training with very many steps, as slurm's job 4711; its progress file and process."""
    plan = FullPlan(gathered([tiny_dag.folder / "config.yaml"], ROOT), ROOT)
    named = (
        candidate
        for (kind, _), candidate in plan.stages.items()
        if kind == "model" and candidate.name == "de_bm25neg"
    )
    stage = next(
        candidate for candidate in named if (tiny_dag.folder / candidate.manifest).is_file()
    )
    words = shlex.split(stage.args)
    words[words.index("--params.train.steps") + 1] = "100000"
    out = tmp_path / "results/tiny/model/de_bm25neg-0123456789/stage.json"
    line = [
        sys.executable,
        "-m",
        "tandem",
        "model",
        *words,
        *shlex.split(stage.how),
        "--out",
        str(out),
    ]
    environment = {**os.environ, "SLURM_JOB_ID": "4711", "OMP_NUM_THREADS": "1"}
    with open(tmp_path / "log.txt", "w") as log:
        process = subprocess.Popen(
            line, cwd=tiny_dag.folder, env=environment, stderr=log, start_new_session=True
        )
    monkeypatch.chdir(tmp_path)
    yield out.with_name("progress.json"), process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_training_is_seen_running_and_dead(training, run_command):
    path, process = training
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.2)
        if path.is_file() and json.loads(path.read_text()).get("note", ""):
            break
    assert process.poll() is None, Path("log.txt").read_text()
    status, lines = run_command("top")
    assert status == 0
    assert len(lines) == 2
    for cell in (
        "model de_bm25neg-0123456789",
        " steps ",
        "100,000",
        "loss ",
        "/s ",
        "GiB",
        f"{os.uname().nodename} slurm 4711",
    ):
        assert cell in lines[1]
    assert "dead" not in lines[1]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    facts = json.loads(path.read_text())
    assert facts["pid"] == process.pid

    def seen(**changes):
        """The state of the job, its file written ten seconds ago and with changes."""
        path.write_text(json.dumps({**facts, "updated": time.time() - 10, **changes}))
        (line,) = run_command("top")[1][1:]
        return line

    assert "dead, silent for 1" in seen()
    assert "dead" in seen(pid=os.getpid())  # the number is another process's by now
    words = ["-c", "input()", "tandem.extras.running.warm_server"]
    with subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE) as forked:
        assert "dead" not in seen(pid=forked.pid)  # its command line is that of the server
        forked.communicate(b"\n")
    assert "dead" not in seen(node="another")  # of which nothing can be seen from here
    assert "dead" not in seen(pids="pid:[1]")
    assert "dead" not in seen(pid=process.pid, updated=time.time())  # it has spoken just now
