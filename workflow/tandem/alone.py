"""One process makes an artifact at a time: a job may outlive the Snakemake that started it, and meet its next try."""

import fcntl
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tandem.artifact import MANIFEST
from tandem.progress import say
from tandem.stages import is_stage


@contextmanager
def alone(words: list[str], environment: Mapping[str, str]) -> Iterator[bool]:
    """Hold the lock of a stage's output; wait as long as another process has it, and say which.

    The kernel frees the lock when its process ends, however it ends. Ranks and the launchers of further nodes share
    that of the first launcher; where the file system knows no locks there is none.

    Args:
        words: a command line after `python -m tandem`; what is no stage or has no `--out` needs no lock.
        environment: tells ranks and slurm's further nodes.
    Yields:
        Whether the process that was waited for has made the output.
    """
    follower = "RANK" in environment or environment.get("SLURM_NODEID", "0") != "0"
    if follower or not is_stage(words[0]) or "--out" not in words[:-1]:
        yield False
        return
    out = Path(words[words.index("--out") + 1])
    out.parent.mkdir(parents=True, exist_ok=True)
    path = out.with_name(f".{out.name}.lock")
    held, waited = _lock(path, f"{words[0]} {out.parent.name}")
    try:
        yield waited and out.is_file()
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(held)


def _lock(path: Path, label: str) -> tuple[int, bool]:
    """The open lock file, with this process' number in it, and whether another process had it."""
    waited = False
    while True:
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(opened, 200, 0).decode(errors="replace") or "another process"
            say(f"{label} · {holder} is making this already: waits until it ends")
            fcntl.flock(opened, fcntl.LOCK_EX)
            waited = True
        except OSError:  # no locks on this file system
            return opened, waited
        with suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(opened).st_ino:
                _clear(path)
                with suppress(OSError):  # a full disk is the stage's to tell
                    os.pwrite(opened, f"process {os.getpid()} on {platform.node()}".encode(), 0)
                return opened, waited
        os.close(opened)  # whoever had it has removed the file


def _clear(lock: Path) -> None:
    """Remove what killed tries of a stage were writing beside its manifest: files `.<name>.<process>`."""
    if lock.name == f".{MANIFEST}.lock":
        for left in lock.parent.glob(".*.*"):
            if left.suffix[1:].isdecimal():
                with suppress(OSError):
                    left.unlink()
