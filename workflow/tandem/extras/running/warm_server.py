"""Processes that have imported the libraries, and fork themselves for each command.

    python -m tandem.extras.running.warm_server FOLDER LIFELINE NAME …

Importing torch and transformers takes a stage four to five seconds of a core, and a run has forty or more stages. Two
servers wait at sockets in FOLDER: one has imported what every stage imports, the other also torch, transformers and the
modules that compute with models. A command contacts the first one (`warm.py`), which refers stages that compute with a
model to the second.

A process that is forked for a command takes over the words, folder, environment, standard files and ignored signals of
the requesting process, and continues as if it had started with them. It is killed when the requesting process ends.
Servers end when LIFELINE, the end of a pipe, is closed at its other side and the last of their processes has ended.
NAME is the name of a socket: `stages`, and `models` if a stage computes with a model.
"""

import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from threadpoolctl import threadpool_limits

from tandem.cluster.threads import WAITING, count_usable_cores, wait_briefly
from tandem.extras.running.warm import (
    ADDRESS,
    ELSEWHERE,
    MODELS,
    NUMBER_BYTES,
    STAGES,
    UNLIKE,
    describe_process,
    encode_number,
    leave,
    receive,
)
from tandem.stages import KINDS, Kind, kind_of_command
from tandem.stages.base import read_flags
from tandem.start import run_command
from tandem.store.job import load, paused_gc

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_PATIENCE_SECONDS = 10.0  # to wait for a request, which comes in one piece
_THREADS = "OMP_NUM_THREADS"
# for stages without and with models
_IMPORTED_AT_FIRST_USE = {
    False: ("pyarrow.dataset",),
    True: (
        "transformers.models.bert.modeling_bert",
        "transformers.models.bert.tokenization_bert",
    ),
}
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_RESET_PEAK = "5"  # for /proc/self/clear_refs: reset the peak of memory


@contextmanager
def serve_warm(
    environment: Mapping[str, str], *, computing: bool = True
) -> Iterator[dict[str, str]]:
    """Start the servers for processes with an environment; yield the variables by which these find the servers.

    Without `computing`, the server of modules that compute with models is left out: its stages begin by themselves.

    The servers end with the block. If this process is killed, they end when their forked processes have ended. Only
    Linux has the files that show a process' end. Elsewhere, or if the variable is set already, nothing is started, and
    commands begin by themselves.
    """
    if not hasattr(os, "pidfd_open") or ADDRESS in environment:
        yield {}
        return
    # as in rules: compiled code is kept
    inherited = {
        name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    # number of OpenMP's threads below other threads than the main one; there a forked process sets its own
    inherited[_THREADS] = "1"
    with TemporaryDirectory(prefix="tandem-warm-") as folder:
        lifeline, end = os.pipe()
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, folder, str(lifeline), STAGES, *([MODELS] if computing else [])],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=inherited, pass_fds=[lifeline], start_new_session=True,
        )  # fmt: skip
        os.close(lifeline)
        try:
            yield {ADDRESS: folder}
        finally:
            os.close(end)
            server.kill()  # and the kernel kills its forked processes
            server.wait()


@dataclass
class Request:
    """A request of a process that will end as the process forked for it ends."""

    words: list[str]
    folder: str
    environment: dict[str, str]
    ignored: list[int]
    process: list[str]
    files: list[int]


class WarmServer:
    """Forks a process for each request at a socket.

    Args:
        listener: the socket.
        lifeline: the file whose end means that no more requests are to be taken.
        process: the description of this process, as it was when it began.
        computes: whether this server has imported the modules that compute with models.
    """

    def __init__(
        self, listener: socket.socket, lifeline: int, process: list[str], computes: bool
    ) -> None:
        self._listener = listener
        self._lifeline = lifeline
        self._process = process
        self._computes = computes
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(lifeline, selectors.EVENT_READ, self._close)

    def serve(self) -> Request | None:
        """Serve until the lifeline ends; return a request in the process forked for it, None in the server."""
        while self._selector.get_map():
            for key, _ in self._selector.select():
                if self._selector.get_map().get(key.fd) is not key:
                    continue  # an earlier event has closed it
                request: Request | None = key.data()
                if request is not None:
                    return request
        return None

    def _close(self) -> None:
        """Take no more requests."""
        for file in (self._listener, self._lifeline):
            self._selector.unregister(file)
        self._listener.close()

    def _accept(self) -> Request | None:
        """Take a request; return it in the process that is forked for it, else None."""
        connection, _ = self._listener.accept()
        try:
            request = _receive_request(connection)
        except (OSError, ValueError):  # the process has ended, or is no Tandem command
            connection.close()
            return None
        refusal = self._refuse(request)
        if refusal is None:
            process = os.fork()
            if process == 0:
                for key in list(self._selector.get_map().values()):
                    os.close(key.fd)
                self._selector.close()
                connection.close()
                return request
            self._watch(process, connection)
        else:
            with suppress(OSError):
                connection.sendall(encode_number(refusal))
            connection.close()
        for file in request.files:
            os.close(file)
        return None

    def _refuse(self, request: Request) -> int | None:
        """Return why no process of this server may run a request; None if one may."""
        if request.process != self._process:
            return UNLIKE
        kind = kind_of_command(request.words[0]) if request.words else None
        if kind and not self._computes and _computes_with_model(kind, request.words):
            return ELSEWHERE
        return None

    def _watch(self, process: int, connection: socket.socket) -> None:
        """Report when a process has ended, and kill it if the process that requested it ends before."""
        end = os.pidfd_open(process)

        def report() -> None:
            """Send the status."""
            _, status = os.waitpid(process, 0)
            with suppress(OSError):
                connection.sendall(encode_number(os.waitstatus_to_exitcode(status)))
            self._selector.unregister(end)
            os.close(end)
            with suppress(KeyError):  # the requesting process has ended before
                self._selector.unregister(connection)
            connection.close()

        def kill() -> None:
            """Kill the process and those that it has started: nobody waits for them any more."""
            self._selector.unregister(connection)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(end, signal.SIGKILL)
                os.killpg(process, signal.SIGKILL)  # it may not lead its group yet

        with suppress(OSError):
            connection.sendall(encode_number(process))
        self._selector.register(end, selectors.EVENT_READ, report)
        self._selector.register(connection, selectors.EVENT_READ, kill)


def _computes_with_model(kind: Kind, words: Sequence[str]) -> bool:
    """Return whether a stage's command line names an input that it computes with on a GPU, or on a CPU instead."""
    return kind.uses_gpu(read_flags(words, "--in."), read_flags(words, "--run."))


def _receive_request(connection: socket.socket) -> Request:
    """Receive a request; an `OSError` if its process has ended, or sends nothing."""
    connection.settimeout(_PATIENCE_SECONDS)
    header, files, _, _ = socket.recv_fds(connection, NUMBER_BYTES, 3)
    size = int.from_bytes(header, "big", signed=True)
    try:
        words, folder, environment, ignored, process = json.loads(receive(connection, size))
    except (OSError, ValueError):
        for file in files:
            os.close(file)
        raise
    connection.settimeout(None)
    return Request(words, folder, environment, ignored, process, files)


def take_over(request: Request) -> None:
    """Give this process the state of the one that requested it."""
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    for standard, file in enumerate(request.files):
        os.dup2(file, standard)
        os.close(file)
    # The server's stream was opened on another file, which may be seekable while this one is a pipe.
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    sys.stdout = os.fdopen(1, "w", encoding=encoding, errors=errors, closefd=False)
    for stop in _STOPS:
        signal.signal(stop, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in request.ignored:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(request.folder)
    waiting = {name: value for name, value in os.environ.items() if name in WAITING}
    os.environ.clear()
    os.environ.update(waiting | request.environment)
    threads = os.environ.get(_THREADS, "")
    threadpool_limits(int(threads) if threads.isdecimal() else count_usable_cores())
    sys.argv = ["tandem", *request.words]


def import_stages(computing: bool) -> None:
    """Import the modules of stages that compute with models, or of the others; what is not installed is left out."""
    for kind in KINDS.values():
        if isinstance(kind.run, str) and (kind.env == "models") == computing:
            with suppress(ImportError):
                load(kind.run)
    prepare_libraries(computing)


def prepare_libraries(computing: bool) -> None:
    """Make libraries do now what each process would do anew at their first use.

    Reading a Parquet file imports pandas, if it is installed; loading a model with transformers compiles a thousand
    regular expressions.
    """
    for module in _IMPORTED_AT_FIRST_USE[computing]:
        with suppress(ImportError):
            import_module(module)
    if computing:
        with suppress(ImportError, AttributeError):  # in another version
            conversions = import_module("transformers.conversion_mapping")
            conversions.get_checkpoint_conversion_mapping("bert")


def main(folder: str, lifeline: int, names: Sequence[str]) -> int:
    """Serve, and in each process that is forked for a request, run its command; return the exit status."""
    process = describe_process()
    os.environ.pop(ADDRESS, None)
    wait_briefly(os.environ)
    # If all processes of a run get a signal to stop, trainings save their states first; their server must outlive them.
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)
    listeners = {name: socket.socket(socket.AF_UNIX) for name in names}
    for name, listener in listeners.items():
        listener.bind(f"{folder}/{name}")
        listener.listen()
    with paused_gc():
        import_stages(computing=False)
    other = os.fork() if MODELS in names else -1
    name = STAGES if other else MODELS
    if other == 0:
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        with paused_gc():
            import_stages(computing=True)
    for each, listener in listeners.items():
        if each != name:
            listener.close()
    request = WarmServer(listeners[name], lifeline, process, name == MODELS).serve()
    if request is None:
        if other > 0:
            os.waitpid(other, 0)
        if name == STAGES:  # the process that created the folder was killed
            shutil.rmtree(folder, ignore_errors=True)
        return 0
    take_over(request)
    return run_command()


if __name__ == "__main__":
    leave(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
