"""The command `top`: a line for each running job, from the progress files that jobs keep; here, or over ssh."""

import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from pydantic import ValidationError

from tandem.cli import columns
from tandem.cluster.progress import SECONDS_PER_CALL, format_duration
from tandem.errors import UserError
from tandem.extras.running.progress_files import (
    PROGRESS_FILE,
    ProgressRecord,
    get_pid_namespace,
)

SILENT = 60.0  # seconds without a sign of life: hung, busy with one long step, or killed
PAUSE = 2.0
_HEAD = ("job", "done", "of", "loss and more", "rate", "left", "memory", "gpu", "where", "state")
CLEAR = "\x1b[H\x1b[2J"
# a host that cannot be taken for a flag of ssh
REMOTE = re.compile(r"(?!-)(?:[\w.-]+@)?[\w.-]+|(?:[\w.-]+@)?\[[0-9A-Fa-f:.]+\]")
_FOLDER_DEPTH = 6
_WARM_SERVER = b"tandem.extras.running.warm_server"  # in the command lines of its forked processes
SEARCH = (
    "-maxdepth",
    str(_FOLDER_DEPTH),
    "-name",
    f"*{PROGRESS_FILE}",
    "-not",
    "-name",
    ".*",
    "-type",
    "f",
)


def print_jobs(
    *places: str,
    watch: bool = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Print a line for each running job.

    Reads the progress files that jobs keep next to their outputs; on another machine by ssh and `find`, without Tandem.
    A job that has written nothing for a minute is `silent`: it may be in one long step, or killed. A job on this
    machine whose process no longer exists is `dead`.

    Args:
        places: FOLDER or USER@HOST:FOLDER; results/ by default.
        watch: repeat every two seconds until Ctrl-C.
        as_json: print a line of JSON per job.
    """
    searched = [parse_place(word) for word in places] or [("", "results")]
    try:
        while True:
            jobs = [job for host, folder in searched for job in list_jobs(host, folder)]
            if as_json:
                text = "\n".join(job.model_dump_json(exclude_none=True) for job in jobs)
            else:
                text = columns([_HEAD, *map(format_cells, jobs)]) if jobs else "no job is running"
            print(f"{CLEAR if watch and sys.stdout.isatty() else ''}{text}", flush=True)
            if not watch:
                return 0
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        return 130


def parse_place(word: str) -> tuple[str, str]:
    """Return (host, folder) of `user@host:folder`, as in scp; a folder with a colon is written `./a:b`."""
    host, colon, folder = word.partition(":")
    if not colon or "/" in host:
        return "", word
    if not REMOTE.fullmatch(host):
        raise UserError(f"{word}: {host!r} is not a host; say user@host:folder")
    return host, folder or "."


class RunningJob(ProgressRecord):
    """A running job: its file's `age` in seconds, the other machine's `host`; `dead`: its process no longer exists."""

    age: float = 0.0
    host: str = ""
    dead: bool = False


def list_jobs(host: str, folder: str) -> list[RunningJob]:
    """Return the jobs below a folder, the longest running first; files that are not progress files are skipped."""
    now, lines = (
        _read_remote(host, folder) if host else (time.time(), list(_read_local(Path(folder))))
    )
    jobs = []
    for line in lines:
        with suppress(ValidationError):
            job = RunningJob.model_validate_json(line)
            job.age, job.host = max(0.0, now - job.updated), host
            job.dead = not host and is_dead(job)  # processes of another machine cannot be checked
            jobs.append(job)
    return sorted(jobs, key=lambda job: job.started)


def is_dead(job: RunningJob) -> bool:
    """Return whether a job's process on this machine no longer exists; False if that cannot be seen.

    A process with another command line is not the job's. One that a warm server forked has the server's command line.
    """
    here = job.node == platform.node() and job.pids is not None and job.pids == get_pid_namespace()
    if not here or job.age < 3 * SECONDS_PER_CALL:
        return False
    try:
        words = Path(f"/proc/{job.pid}/cmdline").read_bytes()
    except OSError as error:
        return isinstance(error, FileNotFoundError | ProcessLookupError)
    return os.fsencode(job.out) not in words and _WARM_SERVER not in words


def _read_local(root: Path) -> Iterator[str]:
    if not root.is_dir():
        raise UserError(
            f"{root}: no such folder; run top where Snakemake is run, or name its results"
        )
    # also into a dataset's folder that is a link; the depth ends a circle of links
    for folder, inner, names in os.walk(root, followlinks=True):
        depth = len(Path(folder).relative_to(root).parts)
        inner[:] = [
            name for name in inner if not name.startswith(".") and depth < _FOLDER_DEPTH - 1
        ]
        for name in names:
            if name.endswith(PROGRESS_FILE) and not name.startswith("."):
                with suppress(OSError):  # the job may have ended meanwhile
                    yield Path(folder, name).read_text(encoding="utf-8", errors="replace")


def _read_remote(host: str, folder: str) -> tuple[float, list[str]]:
    """Return the clock of another machine, and the progress files below a folder on it, a line each."""
    folder = folder.removeprefix("~/")  # ssh starts in the home folder
    # cannot be taken for a flag; with `/` at its end, links are followed
    folder = folder if folder.startswith("/") else f"./{folder}"
    find = shlex.join(["find", f"{folder}/", *SEARCH, "-exec", "cat", "{}", "+"])
    line = [
        "ssh",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
        "--",
        host,
        f"date +%s && {find}",
    ]
    try:
        done = subprocess.run(
            line, capture_output=True, encoding="utf-8", errors="replace", timeout=120
        )
    except FileNotFoundError:
        raise UserError(
            "ssh: no such program; install it, or run top on the machine itself"
        ) from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{host}: no answer in two minutes") from None
    clock, *lines = done.stdout.splitlines() or [""]
    if not clock.isdecimal() or (done.returncode and "No such file" in done.stderr and not lines):
        errors = done.stderr.strip().splitlines()
        raise UserError(f"{host}: {errors[-1] if errors else f'ssh ended with {done.returncode}'}")
    return float(clock), lines


def format_cells(job: RunningJob) -> tuple[str, ...]:
    """Return one job's cells, empty where its file lacks a value."""
    slurm = f" slurm {job.slurm}" if job.slurm else ""
    via = f" via {job.host}" if job.host else ""
    silence = "silent" if job.age >= SILENT else ""
    if job.dead:
        silence = "dead, silent"
    row = (
        f"{job.command} {job.key}",
        "" if job.done is None else f"{job.done:,} {job.unit or ''}",
        f"{job.total:,}" if job.total else "",
        job.note,
        f"{job.rate:,.1f}/s" if job.rate else "",
        "" if job.left is None else format_duration(job.left),
        f"{job.peak_memory_mib / 1024:,.1f} GiB" if job.peak_memory_mib else "",
        f"{job.gpu_memory_mib / 1024:,.1f} GiB" if job.gpu_memory_mib else "",
        f"{job.node}{slurm}{via}",
        f"{silence} for {format_duration(job.age)}"
        if silence
        else f"for {format_duration(job.updated - job.started)}",
    )
    return tuple("".join(c if c.isprintable() else "?" for c in cell) for cell in row)
