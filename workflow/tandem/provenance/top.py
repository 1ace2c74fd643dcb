"""The command `top`: running jobs from their progress files, here or over ssh."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.errors import UserError
from tandem.progress import duration
from tandem.progress_file import FILE
from tandem.searching import words as command_line

REMOTE = re.compile(r"(?!-)(?:[\w.-]+@)?[\w.-]+|(?:[\w.-]+@)?\[[0-9A-Fa-f:.]+\]")  # a host that is no flag of ssh
SILENT = 60.0  # seconds without a word: hung, busy with one long step, or killed
PAUSE = 2.0
SEARCHED = ("-maxdepth", "6", "-name", f"*{FILE}", "-not", "-name", ".*", "-type", "f")
HEAD = ("job", "done", "of", "loss and more", "rate", "left", "memory", "gpu", "where", "state")
CLEAR = "\x1b[H\x1b[2J"


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


def main(words: list[str]) -> int:
    """`top [FOLDER|USER@HOST:FOLDER …] [--watch] [--json]`: prints a line for each running job.

    Reads the progress files that jobs keep beside their outputs; no daemon. On another machine ssh runs `find`, so that
    nothing of Tandem must be installed there. A job that has said nothing for a minute is `silent`: it may be in one
    long step, or killed.

    Args:
        words: folders, results/ if none is told; `--watch` shows it anew every two seconds until Ctrl-C; `--json` a
            line of JSON per job.
    """
    told = command_line.read(words, (), ("--watch", "--json"))
    places = [Place.read(name) for name in told.names] or [Place("results")]
    try:
        while True:
            jobs = [job for place in places for job in jobs_at(place)]
            text = "\n".join(map(json.dumps, jobs)) if "--json" in told.switches else table(jobs)
            print(f"{CLEAR if '--watch' in told.switches and sys.stdout.isatty() else ''}{text}", flush=True)
            if "--watch" not in told.switches:
                return 0
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        return 130


def jobs_at(place: Place) -> list[dict[str, Any]]:
    """What the jobs at a place say, with `age`, seconds since they did, and `host`; the longest running first."""
    if place.host:
        now, lines = _asked(place)
    else:
        now, lines = time.time(), list(_read(Path(place.folder)))
    jobs = []
    for line in lines:
        try:
            job = json.loads(line)
            jobs.append({**job, "age": max(0.0, now - float(job["updated"])), "host": place.host})
        except (ValueError, KeyError, TypeError):
            continue  # no progress file of ours, or of another version
    return sorted(jobs, key=lambda job: float(job.get("started", 0)))


def _read(folder: Path) -> Iterator[str]:
    """The progress files below a folder."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; run top where Snakemake is run, or name its results")
    for path in _files(folder, int(SEARCHED[1])):
        try:
            yield path.read_text(encoding="utf-8")
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
        done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        raise UserError("ssh: no such program; install it, or run top on the machine itself") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{place.host}: no answer in two minutes") from None
    clock, *lines = done.stdout.splitlines() or [""]
    if not clock.isdecimal() or (done.returncode and "No such file" in done.stderr and not lines):
        said = done.stderr.strip().splitlines()
        raise UserError(f"{place.host}: {said[-1] if said else f'ssh ended with {done.returncode}'}")
    return float(clock), lines


def table(jobs: list[dict[str, Any]]) -> str:
    """The jobs as columns."""
    if not jobs:
        return "no job is running"
    rows = [HEAD, *map(_row, jobs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    """One job's cells; what a file does not tell is left empty."""
    unit, rate, left = str(job.get("unit", "")), job.get("rate"), job.get("left")
    done = f"{job['done']:,} {unit}" if "done" in job else ""
    where = str(job.get("host") or job.get("node") or "")
    where += f" slurm {job['slurm']}" if job.get("slurm") else ""
    memory, gpu = job.get("peak_memory_mib"), job.get("gpu_memory_mib")
    silent = job["age"] >= SILENT
    state = f"silent for {duration(job['age'])}" if silent else f"for {duration(job['updated'] - job['started'])}"
    cells = (
        f"{job.get('command', '')} {job.get('key', '')}",
        done,
        f"{job['total']:,}" if job.get("total") else "",
        str(job.get("note") or ""),
        f"{rate:,.1f}/s" if rate else "",
        duration(left) if left is not None else "",
        f"{memory / 1024:,.1f} GiB" if memory else "",
        f"{gpu / 1024:,.1f} GiB" if gpu else "",
        where,
        state,
    )
    return tuple("".join(c if c.isprintable() else "?" for c in cell) for cell in cells)
