"""The command `top`: a line for each running job."""

import json
import sys
import time
from typing import Any

from tandem.cluster.progress import duration
from tandem.provenance.running import Place, jobs_at
from tandem.searching import words as command_line

SILENT = 60.0  # seconds without a word: hung, busy with one long step, or killed
PAUSE = 2.0
HEAD = ("job", "done", "of", "loss and more", "rate", "left", "memory", "gpu", "where", "state")
CLEAR = "\x1b[H\x1b[2J"


def main(words: list[str]) -> int:
    """`top [FOLDER|USER@HOST:FOLDER …] [--watch] [--json]`: prints a line for each running job.

    Reads the progress files that jobs keep beside their outputs; no daemon. On another machine ssh runs `find`, so that
    nothing of Tandem must be installed there. A job that has said nothing for a minute is `silent`: it may be in one
    long step, or killed. One of this machine whose process is gone is `dead`.

    Args:
        words: folders, results/ if none is told; `--watch` shows it anew every two seconds until Ctrl-C; `--json` a
            line of JSON per job.
    """
    told = command_line.read(words, (), ("--watch", "--json"))
    places = [Place.read(name) for name in told.names] or [Place("results")]
    try:
        while True:
            jobs = [job for place in places for job in jobs_at(place, row)]
            text = "\n".join(map(json.dumps, jobs)) if "--json" in told.switches else table(jobs)
            print(f"{CLEAR if '--watch' in told.switches and sys.stdout.isatty() else ''}{text}", flush=True)
            if "--watch" not in told.switches:
                return 0
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        return 130


def table(jobs: list[dict[str, Any]]) -> str:
    """The jobs as columns."""
    if not jobs:
        return "no job is running"
    rows = [HEAD, *map(row, jobs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows)


def row(job: dict[str, Any]) -> tuple[str, ...]:
    """One job's cells; what a file does not tell is left empty."""
    unit, rate, left = str(job.get("unit", "")), job.get("rate"), job.get("left")
    done = f"{job['done']:,} {unit}" if "done" in job else ""
    where = " ".join([str(job.get("node") or ""), *([f"slurm {job['slurm']}"] if job.get("slurm") else [])])
    where += f" via {job['host']}" if job["host"] else ""
    memory, gpu = job.get("peak_memory_mib"), job.get("gpu_memory_mib")
    said = "dead, silent" if job["dead"] else "silent" if job["age"] >= SILENT else ""
    state = f"{said} for {duration(job['age'])}" if said else f"for {duration(job['updated'] - job['started'])}"
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
