"""Running jobs, from the progress files that they keep: here, or on another machine over ssh."""

import json
import os
import platform
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.cluster.progress import EVERY, FILE, pid_namespace
from tandem.errors import UserError

REMOTE = re.compile(r"(?!-)(?:[\w.-]+@)?[\w.-]+|(?:[\w.-]+@)?\[[0-9A-Fa-f:.]+\]")  # a host that is no flag of ssh
SEARCHED = ("-maxdepth", "6", "-name", f"*{FILE}", "-not", "-name", ".*", "-type", "f")


@dataclass(frozen=True)
class Place:
    """Where jobs are looked for: a folder, on another machine if `host` is told."""

    folder: str
    host: str = ""

    @classmethod
    def read(cls, word: str) -> "Place":
        """`results`, or `user@host:folder` as scp has it; a folder with a colon is told as `./a:b`."""
        host, colon, folder = word.partition(":")
        if not colon or "/" in host:
            return cls(word)
        if not REMOTE.fullmatch(host):
            raise UserError(f"{word}: {host!r} is no host; say user@host:folder")
        return cls(folder or ".", host)


def jobs_at(place: Place, row: Callable[[dict[str, Any]], object]) -> list[dict[str, Any]]:
    """What the jobs at a place say; the longest running first.

    Args:
        place: where.
        row: shows a job; a file that it cannot show is none of ours, or of another version.
    Returns:
        Of each what its file tells, with `age`, seconds since it did, `host` and `dead`.
    """
    if place.host:
        now, lines = _asked(place)
    else:
        now, lines = time.time(), list(_read(Path(place.folder)))
    jobs = []
    for line in lines:
        try:
            job = json.loads(line)
            job |= {"age": max(0.0, now - float(job["updated"])), "host": place.host}
            job["started"] = float(job["started"])
            job["dead"] = not place.host and is_dead(job)  # what a far machine's processes do is not asked
            row(job)
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
        jobs.append(job)
    return sorted(jobs, key=lambda job: job["started"])


def is_dead(job: dict[str, Any]) -> bool:
    """Whether the process of a job on this machine is gone; False where that cannot be seen from here.

    The number of a process is used again: another command line is another process.
    """
    here = job.get("node") == platform.node() and job.get("pids") is not None and job["pids"] == pid_namespace()
    if not here or job["age"] < 3 * EVERY:
        return False
    try:
        words = Path(f"/proc/{int(job['pid'])}/cmdline").read_bytes()
    except OSError as error:
        return isinstance(error, FileNotFoundError | ProcessLookupError)
    return os.fsencode(str(job["out"])) not in words


def _read(folder: Path) -> Iterator[str]:
    """The progress files below a folder."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; run top where Snakemake is run, or name its results")
    for path in _files(folder, int(SEARCHED[1])):
        try:
            yield path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # the job has ended meanwhile
            continue


def _files(folder: Path, depth: int) -> Iterator[Path]:
    """Progress files in a folder and so many levels below it."""
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except OSError:
        return
    for entry in found:
        if entry.name.endswith(FILE) and not entry.name.startswith("."):
            yield Path(entry.path)
        elif depth > 1 and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path), depth - 1)


def _asked(place: Place) -> tuple[float, list[str]]:
    """The clock of another machine, and the progress files below a folder of it, a line each."""
    folder = place.folder.removeprefix("~/")  # where ssh begins
    folder = folder if folder.startswith("/") else f"./{folder}"  # no flag; with `/` behind, links are followed
    find = shlex.join(["find", f"{folder}/", *SEARCHED, "-exec", "cat", "{}", "+"])
    line = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", place.host, f"date +%s && {find}"]
    try:
        done = subprocess.run(line, capture_output=True, encoding="utf-8", errors="replace", timeout=120)
    except FileNotFoundError:
        raise UserError("ssh: no such program; install it, or run top on the machine itself") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{place.host}: no answer in two minutes") from None
    clock, *lines = done.stdout.splitlines() or [""]
    if not clock.isdecimal() or (done.returncode and "No such file" in done.stderr and not lines):
        said = done.stderr.strip().splitlines()
        raise UserError(f"{place.host}: {said[-1] if said else f'ssh ended with {done.returncode}'}")
    return float(clock), lines
