"""Start a stage's process: lock its output, lease its GPUs, and run one process per device by torchrun.

For several devices the stage's own command starts itself once per device, with a rank in its environment; on several
nodes slurm starts one launcher on each, and they meet on the first.
"""

import ctypes
import errno
import logging
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tandem.cluster.progress import say
from tandem.cluster.scheduler import lease
from tandem.errors import UserError
from tandem.stages import is_stage, kind_of_command
from tandem.stages.base import flag_value, read_flags
from tandem.store.artifact import MANIFEST
from tandem.store.files import is_partial, write_json
from tandem.store.job import load

_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # torchrun's: where a rank writes why it failed
_LAUNCHER = "TANDEM_LAUNCHER"  # the launcher's process id
# signals: torchrun's own, and those that `sbatch --signal` sends
_PASSED_ON = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
# time in which stopped ranks finish a step and save; slurm is asked to signal a job this long before its end
_STOP_SECONDS = "300"
NODE = "SLURM_NODEID"  # a node's number within its job; the first has 0
_POLL_SECONDS = 0.2  # seconds between two attempts to lock an output
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # of a file system without locks
_GRACE_SECONDS = 2.0  # seconds; torchrun checks its ranks ten times a second
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


@contextmanager
def lock_output(words: list[str], environment: Mapping[str, str]) -> Iterator[bool]:
    """Hold the lock of a stage's output; while another process has it, print which one and wait.

    A job may outlive its Snakemake and meet its next try. Ranks and further nodes share the lock of the first launcher.

    Yields:
        Whether the process that held the lock has finished the output meanwhile.
    """
    follower = "RANK" in environment or environment.get(NODE, "0") != "0"
    if follower or not is_stage(words[0]) or not flag_value(words, "--out"):
        yield False
        return
    out = Path(flag_value(words, "--out"))
    out.parent.mkdir(parents=True, exist_ok=True)
    path = out.with_name(f".{out.name}.lock")
    lock, waited = FileLock(path, poll_interval=_POLL_SECONDS, fallback_to_soft=False), False
    try:
        lock.acquire(blocking=False)
    except Timeout:
        holder, waited = "", True
        with suppress(OSError):
            holder = path.read_text(errors="replace")
        # A shard's output is shards/0-of-2.json within its artifact.
        name = out.parent.name if out.name == MANIFEST else f"{out.parent.parent.name} {out.stem}"
        say(
            f"{words[0]} {name} · {holder or 'another process'} is making this already: waits until it ends"
        )
        lock.acquire()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    try:
        if lock.is_locked:
            for partial in out.parent.glob(".*.*") if out.name == MANIFEST else ():
                if is_partial(partial.name):
                    with suppress(OSError):
                        partial.unlink()
            with suppress(OSError):  # a full disk is reported by the stage
                path.write_text(f"process {os.getpid()} on {platform.node()}")
        yield waited and out.is_file()
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        lock.release()


def place(words: list[str]) -> int | None:
    """Give a stage its devices before any code uses them.

    Returns:
        The exit status if ranks have done the work; None if this process is to do it.
    Raises:
        UserError: there are fewer devices or nodes than `execution` requires.
    """
    kind = kind_of_command(words[0])
    if "RANK" in os.environ or kind is None:
        return None
    if not kind.uses_gpu(read_flags(words, "--in."), read_flags(words, "--run.")):
        return None
    devices = _count(words, "devices") if kind.ranks else 1
    nodes = _count(words, "nodes") if kind.ranks else 1
    lease(devices, words[0])
    if devices * nodes == 1:
        return None
    threads = max(1, _count(words, "workers") // devices)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    meet = load("extras.meeting:meet_nodes")(nodes, Path(flag_value(words, "--out")))
    return 0 if meet is None else launch(words, devices, meet)


def _count(words: list[str], name: str) -> int:
    text = flag_value(words, f"--run.{name}", "1")
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"{words[0]}: --run.{name} is {text}; allowed are 1, 2, 3 …")
    return int(text)


def launch(words: list[str], devices: int, meet: list[str]) -> int:
    """Run a command once per device under torchrun; return 0, or the status of the first rank that failed."""
    logging.disable()  # torchrun's own account of a failure is a page; ours is a line
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ[_LAUNCHER] = str(os.getpid())
    if sys.flags.safe_path:  # torchrun starts the ranks without this process' flags
        os.environ["PYTHONSAFEPATH"] = "1"
    # Imported here: planning and most stages need no torch.
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.run import parse_args, run

    with tempfile.TemporaryDirectory(prefix="tandem-ranks-") as folder:
        flags = [*meet, "--nproc-per-node", str(devices), "--log-dir", folder]
        flags += ["--signals-to-handle", _PASSED_ON, "--shutdown-timeout", _STOP_SECONDS]
        try:
            run(parse_args([*flags, "-m", "tandem", *words]))
        except ChildFailedError as error:
            return _report_failure(words[0], error)
        except SignalException as error:
            # torch's timer may be collected in its own thread, which cannot wait for itself.
            sys.unraisablehook = lambda _: None
            print(f"tandem {words[0]}: ended by {error.sigval.name}", file=sys.stderr)
            return 128 + error.sigval
        except RendezvousError as error:
            raise UserError(f"the nodes did not meet ({' '.join(meet)}): {error}") from None
    return 0


def _report_failure(command: str, error: Any) -> int:
    """Return the status to end with; raise a `UserError` that a rank left to the launcher."""
    for _, failure in sorted(error.failures.items()):
        if Path(failure.error_file).is_file():
            raise UserError(failure.message)
    rank, failure = error.get_first_failure()
    by_signal = failure.exitcode < 0
    how = failure.signal_name() if by_signal else f"status {failure.exitcode}"
    print(
        f"tandem {command}: rank {rank} ended with {how}; the other ranks were stopped",
        file=sys.stderr,
    )
    # As shells report it: 128 plus the signal's number.
    return int(128 - failure.exitcode if by_signal else failure.exitcode)


@contextmanager
def run_as_rank() -> Iterator[None]:
    """Run a stage as a rank, if this process is a rank.

    A user's mistake goes to the launcher, which reports it once. Before another error is raised, this process waits a
    moment: if the error only follows from another rank's end, the launcher stops this process meanwhile.
    """
    if _ERROR_FILE not in os.environ or _LAUNCHER not in os.environ:
        yield
        return
    # the kernel ends this process with its launcher; else it would spoil the next try
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != int(os.environ[_LAUNCHER]):  # the launcher has ended already
        sys.exit(1)
    try:
        yield
    except UserError as error:
        write_json(
            Path(os.environ[_ERROR_FILE]), {"message": str(error), "timestamp": int(time.time())}
        )
        sys.exit(1)
    except Exception:
        time.sleep(_GRACE_SECONDS)
        raise
