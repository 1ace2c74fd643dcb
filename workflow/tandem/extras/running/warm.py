"""Run a command in a process that has already imported the libraries, if a server offers one.

`tandem.extras.running.warm_server` is the server; `tandem run` starts it. A command that knows the server's address
sends its words, its folder, its environment and its three standard files. It passes signals on, and ends in the same
way as the process that the server forked for it. Everything else that decides how a process runs is compared first: if
anything differs, the command runs here, as it does without a server.

This module imports only the standard library: a command that a server runs imports nothing else.
"""

import json
import os
import re
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from tandem.cluster.threads import is_waiting_decided, others_compute
from tandem.extras.running.run_above import PASSED_ON, stop_run

ADDRESS = "TANDEM_WARM"  # the folder of the servers' sockets
STAGES, MODELS = "stages", "models"  # sockets: of processes without and with torch and transformers
# Answers in place of a process id: another server has the libraries; the process would differ from this one.
ELSEWHERE, UNLIKE = -1, 0
NUMBER_BYTES = 8
SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# Variables that Python and the libraries read while loading, except for numbers of threads, which can be set later.
_READ_AT_LOADING = re.compile(
    "(ATEN|DNNL|GOMP|HF|HUGGINGFACE|KMP|LC|LD|MALLOC|MKL|OMP|ONEDNN|OPENBLAS|PYTHON|TOKENIZERS|TRANSFORMERS)_?[A-Z_0-9]*"
    "|LANG|TZ"
)
_THREADS = re.compile("[A-Z]+_NUM_THREADS")
_LIMITS = [getattr(resource, name) for name in sorted(vars(resource)) if name.startswith("RLIMIT_")]
_GROUPS = Path("/proc/self/cgroup")


def describe_process() -> list[str]:
    """Return what decides how a process runs here, apart from its words, folder and remaining environment."""
    sources = Path(__file__).parents[2].rglob("*.py")
    read_at_loading = {
        name: value
        for name, value in sorted(os.environ.items())
        if _READ_AT_LOADING.fullmatch(name) and not _THREADS.fullmatch(name)
    }
    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    mask = os.umask(0)  # the only way to read it
    os.umask(mask)
    described = [
        sys.executable,
        sys.flags,
        sys.path,
        max(source.stat().st_mtime_ns for source in sources),
        read_at_loading,
        affinity,
        os.getpriority(os.PRIO_PROCESS, 0),
        (os.getuid(), os.getgid(), mask),
        [resource.getrlimit(limit) for limit in _LIMITS],
        _GROUPS.read_text() if _GROUPS.is_file() else "",
    ]
    return [str(each) for each in described]


def run_warm(words: Sequence[str]) -> int | None:
    """Let a server's process run a stage's command, or another that writes a file, and end in the same way.

    Returns:
        Its exit status; None if there is no server, or none like this process: then the caller runs the command itself.
    """
    folder = os.environ.get(ADDRESS)
    if not folder or "--out" not in words or _waits_otherwise(words):
        return None
    request = json.dumps(
        [list(words), os.getcwd(), dict(os.environ), _list_ignored(), describe_process()]
    ).encode()
    for name in (STAGES, MODELS):
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(f"{folder}/{name}")
                process = _start(connection, request)
            except OSError:  # no server, or it ended before it had begun the command
                return None
            if process > 0:
                return _follow(connection, process)
        if process == UNLIKE:
            return None
    return None


def _waits_otherwise(words: Sequence[str]) -> bool:
    """Return whether a stage's threads must sleep at once next to other programs: libraries read that while loading."""
    alone = "--run.workers" in words and words[words.index("--run.workers") + 1] == "1"
    return not (alone or is_waiting_decided(os.environ)) and others_compute()


def _list_ignored() -> list[int]:
    """Return the signals that this process ignores, for example because of `nohup`."""
    return [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN]


def _start(connection: socket.socket, request: bytes) -> int:
    """Send a request; return its process id, to which signals are passed from now on, or why there is no process."""
    # a signal that comes before the process exists waits until it does
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        socket.send_fds(connection, [encode_number(len(request))], [0, 1, 2])
        connection.sendall(request)
        process = receive_number(connection)
        passed = set[int]()
        if process > 0:
            for number in SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    signal.signal(number, lambda caught, _: _pass_on(process, caught, passed))
        return process
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pass_on(process: int, number: int, passed: set[int]) -> None:
    """Send a signal to the process that computes, and notify the run above this process.

    The run responds with SIGINT. That would reach a process that is already ending: the first one is not passed on.
    """
    is_answer = (
        number == signal.SIGINT and number not in passed and not passed.isdisjoint(PASSED_ON)
    )
    passed.add(number)
    if not is_answer:
        os.kill(process, number)
        stop_run(number)


def _follow(connection: socket.socket, process: int) -> int:
    """Wait until the process ends; then end by the same signal, or return the same status."""
    try:
        status = receive_number(connection)
    except OSError:
        print(
            f"tandem: process {process} has ended with the one that had started it", file=sys.stderr
        )
        return 1
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def encode_number(number: int) -> bytes:
    """Encode a number for sending."""
    return number.to_bytes(NUMBER_BYTES, "big", signed=True)


def receive_number(connection: socket.socket) -> int:
    """Receive a number; an `OSError` if the other side has ended."""
    return int.from_bytes(receive(connection, NUMBER_BYTES), "big", signed=True)


def receive(connection: socket.socket, size: int) -> bytes:
    """Receive `size` bytes; an `OSError` if the other side has ended."""
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("the other side has ended")
        received += piece
    return received


def leave(status: int) -> NoReturn:
    """End this process; after a failure skip the libraries' clean-up, which fails at length if memory has run out."""
    if status:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError):
                stream.flush()
        os._exit(status)
    if sys.stdout is None:  # closed by the program that started the command
        sys.exit()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has read enough; Python would retry and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit()
