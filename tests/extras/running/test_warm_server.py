"""Processes that are forked for a command: they do what it would do by itself, and end with it."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tandem.extras.running.warm import ADDRESS
from tandem.extras.running.warm_server import serve_warm

# A stage that writes what it sees, and then does what its parameter says.
PLUGIN = """
import json, os, signal, sys, time
from pathlib import Path
from tandem.stages import Kind, Params, register_stage

class Watched(Params):
    then: str = ""

def watch(job):
    seen = {
        "process": os.getpid(), "folder": os.getcwd(), "variable": os.environ.get("SEEN"), "words": sys.argv[1:],
        "libraries": [name for name in ("torch", "pyarrow") if name in sys.modules], "input": sys.stdin.read(),
        "hangs_up": signal.getsignal(signal.SIGHUP) != signal.SIG_IGN, "paths": sys.path,
        "is_warm": sys.modules["__main__"].__spec__.name.endswith("warm_server"),
    }
    Path("seen.partial").write_text(json.dumps(seen))
    os.rename("seen.partial", "seen.json")
    print("printed"), print("complained", file=sys.stderr)
    exec(job.params.then)
    sys.exit(7)

register_stage(Kind("watch", watch, Watched))
"""


@pytest.fixture(scope="module")
def address():
    """What tells commands of a server."""
    with serve_warm(os.environ) as variables:
        deadline = time.monotonic() + 120
        while not all(Path(variables[ADDRESS], name).exists() for name in ("stages", "models")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield variables


@pytest.fixture
def start(address, tmp_path):
    """`start(then, **options)`: a process of the stage, which a server's process stands behind."""
    (tmp_path / "watched.py").write_text(PLUGIN)

    def begin(then: str = "", environment: dict | None = None, **options) -> subprocess.Popen:
        # rules unset it, and so does the server
        inherited = {
            name: os.environ[name] for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"
        }
        words = [
            "--run.plugins",
            '["watched.py"]',
            "--run.workers",
            "1",
            "--params.then",
            json.dumps(then),
        ]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "tandem", "watch", *words, "--out", "watch/x-1/stage.json"],
            cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=inherited | address | (environment or {}), **options,
        )  # fmt: skip

    return begin


@pytest.fixture
def seen(tmp_path):
    """`seen()`: what the stage has seen, once it has."""

    def wait() -> dict:
        deadline = time.monotonic() + 60
        while not (tmp_path / "seen.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return json.loads((tmp_path / "seen.json").read_text())

    return wait


def has_ended(process: int) -> bool:
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + 120  # a server that is importing sees its end afterwards
    while psutil.pid_exists(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not psutil.pid_exists(process)


def test_a_forked_process_has_the_words_files_folder_and_environment(start, seen, tmp_path):
    process = start(environment={"SEEN": "by both"})
    printed, complained = process.communicate("given", timeout=60)
    facts = seen()
    assert facts["is_warm"]
    assert facts["process"] != process.pid
    assert facts["folder"] == str(tmp_path)
    assert str(tmp_path) not in facts["paths"]  # a file there hides no library's module
    assert (facts["variable"], facts["input"]) == ("by both", "given")
    assert facts["words"][0] == "watch"
    assert (printed, complained) == ("printed\n", "complained\n")
    assert process.returncode == 7


def test_what_ends_by_a_signal_is_seen_to_end_by_it(start):
    process = start("os.kill(os.getpid(), signal.SIGKILL)")
    process.communicate("", timeout=60)
    assert process.returncode == -signal.SIGKILL


def test_a_signal_reaches_the_process_that_works(start, seen):
    process = start("time.sleep(60)")
    process.stdin.close()
    worker = seen()["process"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == -signal.SIGTERM
    assert has_ended(worker)


def test_who_asked_is_killed_and_so_is_the_process_that_works(start, seen):
    process = start("time.sleep(60)")
    process.stdin.close()
    worker = seen()["process"]
    process.kill()
    process.wait(20)
    assert has_ended(worker)


def test_an_ignored_signal_stays_ignored(start, seen):
    process = start(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.communicate("", timeout=60)
    assert seen()["is_warm"]
    assert not seen()["hangs_up"]


@pytest.mark.parametrize(
    "difference",
    [
        {"environment": {"OMP_WAIT_POLICY": "PASSIVE"}},
        {"environment": {"PYTHONPATH": os.environ.get("PYTHONPATH", "") + ":/elsewhere"}},
        {"preexec_fn": lambda: os.nice(3)},
        {"preexec_fn": lambda: os.umask(0o077)},
        {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (999, 999))},
        {"environment": {ADDRESS: "/nowhere"}},
    ],
)
def test_a_process_that_would_be_another_one_begins_by_itself(start, seen, difference):
    process = start(**difference)
    process.communicate("", timeout=60)
    assert not seen()["is_warm"]
    assert process.returncode == 7


STARTS = """
import os, time
from tandem.extras.running.warm_server import serve_warm
with serve_warm(os.environ) as address:
    print(*address.values(), flush=True)
    time.sleep(60 * {ends})
"""


@pytest.mark.parametrize("ends", ["by itself", "killed"])
def test_servers_end_with_the_process_that_has_started_them(ends):
    script = STARTS.format(ends=int(ends == "killed"))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    folder = process.stdout.readline().strip()
    if ends == "killed":
        while not Path(folder, "models").exists():
            time.sleep(0.1)
        process.kill()
    process.wait(30)
    servers = [
        each for each in psutil.process_iter(["cmdline"]) if folder in (each.info["cmdline"] or [])
    ]
    assert all(has_ended(server.pid) for server in servers)
    assert not Path(folder).exists()


def test_where_the_variable_is_set_nothing_is_started():
    with serve_warm(os.environ | {ADDRESS: ""}) as variables:
        assert variables == {}
