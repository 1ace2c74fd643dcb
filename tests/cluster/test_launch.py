"""One process per device: what is started, where nodes meet, and how ranks and their launcher end."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tandem.cluster.launch import place
from tandem.errors import UserError
from tandem.extras.meeting import make_rendezvous_flags, wait_for_first

MODEL = [
    "model",
    "--params.objective",
    "dual",
    "--in.start",
    "nowhere",
    "--out",
    "model/de-0123456789/stage.json",
]


@pytest.fixture
def scontrol(monkeypatch, tmp_path):
    """A scontrol that knows the hosts of the list `gpu[1-3]` and no other."""
    program = tmp_path / "bin/scontrol"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\n[ "$*" = "show hostnames gpu[1-3]" ] && printf "gpu1\\ngpu2\\ngpu3\\n"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "15007", "SLURM_JOB_NODELIST": "gpu[1-3]"}


def test_one_node_meets_itself():
    assert make_rendezvous_flags(1, {"SLURM_JOB_NODELIST": "gpu[1-3]"}) == [
        "--standalone",
        "--local-addr",
        "127.0.0.1",
    ]


def test_nodes_meet_on_the_first_at_a_port_of_the_job(scontrol):
    first = make_rendezvous_flags(3, scontrol | {"SLURM_NODEID": "0", "SLURM_STEP_ID": "2"})
    assert first == [
        "--nnodes", "3", "--rdzv-backend", "c10d", "--rdzv-id", "15007.0.2", "--rdzv-endpoint", "gpu1:15007",
        "--rdzv-conf", "is_host=1",
    ]  # fmt: skip
    other = make_rendezvous_flags(3, scontrol | {"SLURM_NODEID": "2", "SLURM_STEP_ID": "2"})
    assert other == [*first[:-1], "is_host=0"]


def test_what_an_earlier_start_of_a_job_has_left_is_not_met(scontrol):
    first, second = (
        make_rendezvous_flags(2, scontrol | {"SLURM_RESTART_COUNT": count}) for count in "01"
    )
    assert [word for word in first if word not in second] == ["15007.0.0"]


def later(seconds, act):
    """Have something done while the test waits."""
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


def test_a_further_node_waits_until_the_first_can_be_met(tmp_path):
    """The first may wait for the output's lock as long as it likes."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        timer = later(1, server.listen)
        began = time.monotonic()
        assert wait_for_first(*server.getsockname(), tmp_path / "stage.json")
        assert time.monotonic() - began > 0.9
        timer.join()


def test_a_further_node_has_nothing_to_do_if_the_output_is_finished_meanwhile(tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))  # nobody listens
        timer = later(0.5, (tmp_path / "stage.json").touch)
        assert not wait_for_first(*server.getsockname(), tmp_path / "stage.json")
        timer.join()


def test_nodes_that_are_not_there_are_a_mistake(scontrol):
    with pytest.raises(
        UserError, match=r"^execution.nodes is 2, but SLURM_JOB_NODELIST is not set"
    ):
        make_rendezvous_flags(2, {})
    with pytest.raises(
        UserError, match=r"^execution.nodes is 4, but the slurm job has 3: gpu1, gpu2, gpu3$"
    ):
        make_rendezvous_flags(4, scontrol)
    with pytest.raises(
        UserError, match=r"^the names of the slurm job's nodes are unknown: .*exit status 1"
    ):
        make_rendezvous_flags(2, scontrol | {"SLURM_JOB_NODELIST": "cpu7"})


@pytest.mark.parametrize(
    ("line", "visible"),
    [
        ("bm25 --in.dataset d", None),
        ("candidates --in.dataset d --in.run r", None),
        ("candidates --in.dataset d --in.judge.0 m --run.devices 2", "0"),
        ("model --in.checkpoint.1 c", None),
        ("rerank --in.model m", "0"),
        ("rerank-shard --in.model m --run.devices 2", "0"),
        ("embeddings-shard --in.model m", "0"),
        ("retrieve --in.passages p --in.queries q --run.engine auto", "0"),
        ("retrieve-shard --in.passages p --in.queries q --run.engine faiss", None),
        ("report --tables t", None),
        ("rerank_llm --in.dataset d --in.run r", "0"),
        ('rerank_llm --in.dataset d --in.run r --run.endpoint {"url":"http://localhost"}', None),
        ('judge_llm --in.pool p --run.endpoint {"url":"http://localhost"}', None),
    ],
)
def test_who_computes_with_a_model_gets_one_gpu(line, visible, monkeypatch, tmp_path):
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "RANK"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("TANDEM_LEASES", str(tmp_path))
    monkeypatch.setenv("TANDEM_GPUS", "0,1")
    assert place(line.split()) is None
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible


@pytest.mark.parametrize("devices", ["0", "-1", "two", "1.5"])
def test_a_number_of_devices_is_a_whole_number(devices):
    with pytest.raises(
        UserError, match=f"^model: --run.devices is {devices}; allowed are 1, 2, 3 …$"
    ):
        place([*MODEL, "--run.devices", devices])


@pytest.fixture
def tandem(tmp_path):
    """`tandem(words, site)`: a stage on two devices, running; `site` is code that every process begins with."""
    started = []

    def run(words, site=""):
        (tmp_path / "sitecustomize.py").write_text(
            f"import os, signal, sys, time\nrank = os.environ.get('RANK')\n{site}"
        )
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        line = [sys.executable, "-m", "tandem", *words, "--run.devices", "2"]
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }
        started.append(
            subprocess.Popen(line, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_a_mistake_that_every_rank_finds_is_said_once(tandem):
    done = tandem(MODEL)
    line = "tandem model: nowhere: not a finished artifact, stage.json is missing; run its stage first\n"
    assert (done.communicate(timeout=120)[1], done.returncode) == (line, 1)


def test_a_rank_that_is_killed_ends_all_with_its_status(tandem):
    done = tandem(
        MODEL, "if rank == '1': os.kill(os.getpid(), signal.SIGKILL)\nelif rank: time.sleep(60)"
    )
    line = "tandem model: rank 1 ended with SIGKILL; the other ranks were stopped\n"
    assert (done.communicate(timeout=120)[1], done.returncode) == (line, 128 + signal.SIGKILL)


def children(pid):
    """Process ids."""
    return subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()


def reads(pid, path):
    """Whether a process has a file open."""
    try:
        return any(os.readlink(opened) == str(path) for opened in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:  # closed meanwhile
        return False


def until(true):
    """Wait for something."""
    deadline = time.monotonic() + 300
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("by", "status", "line"),
    [
        ("SIGKILL", -9, ""),
        ("SIGTERM", 128 + 15, "tandem model: ended by SIGTERM\n"),
        ("SIGUSR1", 128 + 10, "tandem model: ended by SIGUSR1\n"),
    ],
)
def test_ranks_end_with_their_launcher(by, status, line, tandem, tmp_path):
    """Both ranks are held up by a manifest that nobody writes."""
    manifest = tmp_path / "nowhere/stage.json"
    manifest.parent.mkdir()
    os.mkfifo(manifest)
    held = os.open(manifest, os.O_RDWR)
    launcher = tandem(MODEL)
    until(lambda: sum(reads(rank, manifest) for rank in children(launcher.pid)) == 2)
    ranks = children(launcher.pid)
    launcher.send_signal(signal.Signals[by])
    assert (launcher.communicate(timeout=60)[1], launcher.returncode) == (line, status)
    until(lambda: not any(Path(f"/proc/{rank}").exists() for rank in ranks))
    os.close(held)


SAVING = """
def save(*_):
    time.sleep(32)  # two seconds longer than torchrun would wait by itself
    open(f"saved-{rank}", "w").close()
    os._exit(1)

if rank:
    signal.signal(signal.SIGTERM, save)
    open(f"ready-{rank}", "w").close()
    time.sleep(300)
"""


def test_stopped_ranks_have_time_to_save(tandem, tmp_path):
    launcher = tandem(MODEL, SAVING)
    until(lambda: len([*tmp_path.glob("ready-*")]) == 2)
    launcher.send_signal(signal.SIGTERM)
    line = "tandem model: ended by SIGTERM\n"
    assert (launcher.communicate(timeout=120)[1], launcher.returncode) == (line, 128 + 15)
    assert len([*tmp_path.glob("saved-*")]) == 2


RANK = """
import os, sys
from tandem.errors import UserError
from tandem.cluster.launch import run_as_rank
os.environ["TANDEM_LAUNCHER"] = str({launcher})
with run_as_rank():
    raise {error}
"""


@pytest.mark.parametrize(
    ("launcher", "error", "message"),
    [
        ("os.getppid()", "UserError('no such thing')", "no such thing"),
        ("os.getppid()", "ValueError('a bug')", None),
        ("os.getpid()", "ValueError('too late: the launcher has ended')", None),
    ],
)
def test_a_rank_leaves_a_users_mistake_to_its_launcher(launcher, error, message, tmp_path):
    written = tmp_path / "error.json"
    line = [sys.executable, "-c", RANK.format(launcher=launcher, error=error)]
    done = subprocess.run(
        line,
        env={**os.environ, "TORCHELASTIC_ERROR_FILE": str(written)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert (json.loads(written.read_text())["message"] if written.exists() else None) == message
    assert ("ValueError: a bug" in done.stderr) == ("a bug" in error)
    assert bool(done.stderr) == ("a bug" in error)
