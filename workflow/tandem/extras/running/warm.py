"""Have a command run by a process that has imported the libraries already, where one serves them.

`tandem.extras.running.warm_server` is that process; `tandem run` starts it. A command that finds its address sends its
words, its folder, its environment and its three standard files, passes signals on, and ends as the process ends that
was forked for it. Whatever else decides how a process runs is compared first: where anything differs, the command runs
here, as it does without a server.

This module imports the standard library alone: the commands that it serves import nothing else.
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
# Answers before a process' number: another server has the libraries; the process would not be as it is here.
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
# Variables that Python and the libraries read as they are loaded, but for numbers of threads, which can be set later.
_READ_AT_LOADING = re.compile(
    "(ATEN|DNNL|GOMP|HF|HUGGINGFACE|KMP|LC|LD|MALLOC|MKL|OMP|ONEDNN|OPENBLAS|PYTHON|TOKENIZERS|TRANSFORMERS)_?[A-Z_0-9]*"
    "|LANG|TZ"
)
_THREADS = re.compile("[A-Z]+_NUM_THREADS")
_LIMITS = [getattr(resource, name) for name in sorted(vars(resource)) if name.startswith("RLIMIT_")]
_GROUPS = Path("/proc/self/cgroup")


def describe_process() -> list[str]:
    """Return what decides how a process of this machine runs, beside its words, folder and further environment."""
    sources = Path(__file__).parents[2].rglob("*.py")
    read_at_loading = {
        name: value
        for name, value in sorted(os.environ.items())
        if _READ_AT_LOADING.fullmatch(name) and not _THREADS.fullmatch(name)
    }
    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    mask = os.umask(0)  # which cannot be read in another way
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
    """Have a server's process run a stage's command, or another that makes a file, and end as it does.

    Returns:
        Its exit status; None where no server is, or none like this process: it is to run the command itself.
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
            except OSError:  # no server, or one that has ended before it had begun
                return None
            if process > 0:
                return _follow(connection, process)
        if process == UNLIKE:
            return None
    return None


def _waits_otherwise(words: Sequence[str]) -> bool:
    """Return whether a stage's threads are to sleep at once beside other programs: libraries read that as they load."""
    alone = "--run.workers" in words and words[words.index("--run.workers") + 1] == "1"
    return not (alone or is_waiting_decided(os.environ)) and others_compute()


def _list_ignored() -> list[int]:
    """Return the signals that this process ignores, as `nohup` has it."""
    return [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN]


def _start(connection: socket.socket, request: bytes) -> int:
    """Send a request; return the number of its process, to which signals go from now on, or why there is none."""
    # a signal that comes before there is a process waits until there is one
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
    """Send a signal to the process that computes, and tell the run that is above this one.

    The run answers by SIGINT. That would meet a process that ends already, and is not passed on the first time.
    """
    is_answer = (
        number == signal.SIGINT and number not in passed and not passed.isdisjoint(PASSED_ON)
    )
    passed.add(number)
    if not is_answer:
        os.kill(process, number)
        stop_run(number)


def _follow(connection: socket.socket, process: int) -> int:
    """Wait for the end of the process; end by the same signal, or return the same status."""
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
    """Return a number as it is sent."""
    return number.to_bytes(NUMBER_BYTES, "big", signed=True)


def receive_number(connection: socket.socket) -> int:
    """Receive a number; an `OSError` where the other side has ended."""
    return int.from_bytes(receive(connection, NUMBER_BYTES), "big", signed=True)


def receive(connection: socket.socket, size: int) -> bytes:
    """Receive so many bytes; an `OSError` where the other side has ended."""
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("the other side has ended")
        received += piece
    return received


def leave(status: int) -> NoReturn:
    """End this process; after a failure without the libraries' clean-up, which without memory fails at length."""
    if status:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError):
                stream.flush()
        os._exit(status)
    if sys.stdout is None:  # closed by whoever started the command
        sys.exit()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # its reader has read enough; Python would try again and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit()
