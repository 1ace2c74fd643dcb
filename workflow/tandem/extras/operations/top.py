"""The command `top`: a line for each running job, from the progress files that jobs keep; here, or over ssh."""

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from cyclopts import Parameter

from tandem.cluster.progress import EVERY, FILE, duration, pid_namespace
from tandem.errors import UserError

SILENT = 60.0  # seconds without a sign of life: hung, busy with one long step, or killed
PAUSE = 2.0
HEAD = ("job", "done", "of", "loss and more", "rate", "left", "memory", "gpu", "where", "state")
CLEAR = "\x1b[H\x1b[2J"
REMOTE = re.compile(r"(?!-)(?:[\w.-]+@)?[\w.-]+|(?:[\w.-]+@)?\[[0-9A-Fa-f:.]+\]")  # a host that is no flag of ssh
DEPTH = 6
SEARCH = ("-maxdepth", str(DEPTH), "-name", f"*{FILE}", "-not", "-name", ".*", "-type", "f")


def top(
    *places: str,
    watch: Annotated[bool, Parameter(negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Print a line for each running job.

    Reads the progress files that jobs keep beside their outputs; no daemon. On another machine ssh runs `find`, so that
    nothing of Tandem must be installed there. A job that has written nothing for a minute is `silent`: it may be in one
    long step, or killed. One of this machine whose process is gone is `dead`.

    Args:
        places: FOLDER or USER@HOST:FOLDER; results/ by default.
        watch: repeat every two seconds until Ctrl-C.
        as_json: print a line of JSON per job.
    """
    searched = [Place.parse(word) for word in places] or [Place("results")]
    try:
        while True:
            jobs = [job for place in searched for job in jobs_at(place)]
            text = "\n".join(json.dumps(job.data) for job in jobs) if as_json else table(jobs)
            print(f"{CLEAR if watch and sys.stdout.isatty() else ''}{text}", flush=True)
            if not watch:
                return 0
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        return 130


@dataclass(frozen=True)
class Place:
    """Where jobs are looked for: a folder, on another machine if `host` is set."""

    folder: str
    host: str = ""

    @classmethod
    def parse(cls, word: str) -> "Place":
        """`results`, or `user@host:folder` as scp has it; a folder with a colon is written as `./a:b`."""
        host, colon, folder = word.partition(":")
        if not colon or "/" in host:
            return cls(word)
        if not REMOTE.fullmatch(host):
            raise UserError(f"{word}: {host!r} is not a host; say user@host:folder")
        return cls(folder or ".", host)


class Job(NamedTuple):
    """A job: its progress file's data with `age`, `host` and `dead`, and its cells."""

    data: dict[str, Any]
    cells: tuple[str, ...]


def jobs_at(place: Place) -> list[Job]:
    """The jobs at a place, the longest running first.

    Files that are not progress files of this version are passed over. Their data is extended by `age` (seconds since
    the file was written), `host` and `dead`.
    """
    if place.host:
        now, lines = _read_remote(place)
    else:
        now, lines = time.time(), list(_read_local(Path(place.folder)))
    jobs = []
    for line in lines:
        try:
            data = json.loads(line)
            data |= {"age": max(0.0, now - float(data["updated"])), "host": place.host}
            data["started"] = float(data["started"])
            data["dead"] = not place.host and is_dead(data)  # processes of another machine are not asked for
            jobs.append(Job(data, cells(data)))
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
    return sorted(jobs, key=lambda job: job.data["started"])


def is_dead(job: dict[str, Any]) -> bool:
    """Whether the process of a job on this machine is gone; False where that cannot be seen from here.

    Numbers of processes are used again: another command line is another process.
    """
    here = job.get("node") == platform.node() and job.get("pids") is not None and job["pids"] == pid_namespace()
    if not here or job["age"] < 3 * EVERY:
        return False
    try:
        words = Path(f"/proc/{int(job['pid'])}/cmdline").read_bytes()
    except OSError as error:
        return isinstance(error, FileNotFoundError | ProcessLookupError)
    return os.fsencode(str(job["out"])) not in words


def _read_local(folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; run top where Snakemake is run, or name its results")
    for path in _progress_files(folder, DEPTH):
        try:
            yield path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # the job has ended meanwhile
            continue


def _progress_files(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as listed:
            entries = list(listed)
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(FILE) and not entry.name.startswith("."):
            yield Path(entry.path)
        elif depth > 1 and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
            yield from _progress_files(Path(entry.path), depth - 1)


def _read_remote(place: Place) -> tuple[float, list[str]]:
    """The clock of another machine, and the progress files below a folder of it, a line each."""
    folder = place.folder.removeprefix("~/")  # where ssh begins
    folder = folder if folder.startswith("/") else f"./{folder}"  # no flag; with `/` behind, links are followed
    find = shlex.join(["find", f"{folder}/", *SEARCH, "-exec", "cat", "{}", "+"])
    line = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", place.host, f"date +%s && {find}"]
    try:
        done = subprocess.run(line, capture_output=True, encoding="utf-8", errors="replace", timeout=120)
    except FileNotFoundError:
        raise UserError("ssh: no such program; install it, or run top on the machine itself") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{place.host}: no answer in two minutes") from None
    clock, *lines = done.stdout.splitlines() or [""]
    if not clock.isdecimal() or (done.returncode and "No such file" in done.stderr and not lines):
        errors = done.stderr.strip().splitlines()
        raise UserError(f"{place.host}: {errors[-1] if errors else f'ssh ended with {done.returncode}'}")
    return float(clock), lines


def table(jobs: list[Job]) -> str:
    """The jobs as columns."""
    if not jobs:
        return "no job is running"
    rows = [HEAD, *(job.cells for job in jobs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def cells(job: dict[str, Any]) -> tuple[str, ...]:
    """One job's cells; what its file lacks is empty."""
    unit, rate, left = str(job.get("unit", "")), job.get("rate"), job.get("left")
    where = " ".join([str(job.get("node") or ""), *([f"slurm {job['slurm']}"] if job.get("slurm") else [])])
    where += f" via {job['host']}" if job["host"] else ""
    memory, gpu = job.get("peak_memory_mib"), job.get("gpu_memory_mib")
    silence = "dead, silent" if job["dead"] else "silent" if job["age"] >= SILENT else ""
    state = f"{silence} for {duration(job['age'])}" if silence else f"for {duration(job['updated'] - job['started'])}"
    row = (
        f"{job.get('command', '')} {job.get('key', '')}",
        f"{job['done']:,} {unit}" if "done" in job else "",
        f"{job['total']:,}" if job.get("total") else "",
        str(job.get("note") or ""),
        f"{rate:,.1f}/s" if rate else "",
        duration(left) if left is not None else "",
        f"{memory / 1024:,.1f} GiB" if memory else "",
        f"{gpu / 1024:,.1f} GiB" if gpu else "",
        where,
        state,
    )
    return tuple("".join(c if c.isprintable() else "?" for c in cell) for cell in row)
