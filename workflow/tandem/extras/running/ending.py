"""The last lines of a run: the answer, or why it failed."""

import re
from pathlib import Path

from tandem.errors import shortened
from tandem.extras.running.events import Job, Run
from tandem.extras.running.line import describe
from tandem.extras.running.logs import read_lines, stage_words
from tandem.plan.graph import Stages
from tandem.report import formats
from tandem.report.results import Table

LONGEST = 600  # characters of Snakemake's own words
KILLED = 137  # the status of a process that was ended by SIGKILL


def answer_lines(table: Table, page: Path) -> list[str]:
    """Five lines: the best system, by how much it is better than the reference, p, what hurt, and the page."""
    best, gain, p = table.best, "–", "–"
    if best is None:
        return [f"report  {page}"]
    if best.gain is not None:
        gain, p = f"{formats.signed(best.gain, 1)} over {best.over}", formats.probability(best.p)
        p += "" if best.p is not None and best.p < formats.LEVEL else ": not significant"
    worse = formats.hurt(table)
    return [
        f"best    {best.system}: {best.measure} {formats.number(best.value, 1)}",
        f"gain    {gain}",
        f"p       {p}",
        f"hurt    {formats.losses(worse) if worse else 'nothing, significantly'}",
        f"report  {page}",
    ]


def failure_lines(run: Run, stages: Stages, log: Path, unlock: str) -> list[str]:
    """Why a run failed; the last line begins with `tandem` and says what to mend.

    Args:
        log: of Snakemake's own output.
        unlock: the command that frees a locked folder.
    """
    lines = [f"Snakemake's output: {log}"]
    for job in run.failed.values():
        lines += [f"{describe(job, stages)} failed; its log: {', '.join(job.log) or log}", _why_job(job, run, stages)]
    if run.failed:
        return lines
    if any(error.exception == "LockException" for error in run.errors):
        problem = f"{Path.cwd()} is locked by another run, or by one that was killed"
        return [*lines, f"tandem run: {problem}; if none is running: {unlock}"]
    return [*lines, f"tandem run: {_why_snakemake(run, log)}"]


def _why_job(job: Job, run: Run, stages: Stages) -> str:
    """The `tandem …:` line at the end of a job's log, or its last words."""
    if own := stage_words([Path(path) for path in job.log]):
        return own
    what = f"tandem run: {describe(job, stages)}"
    statuses = [int(status) for error in run.errors for status in re.findall(r"exit status (\d+)", error.message)]
    if KILLED in statuses:
        return f"{what} was killed, perhaps for want of memory; the same command goes on with what is done"
    status = f" with status {statuses[-1]}" if statuses else ""
    words = [line for path in job.log for line in read_lines(Path(path))]
    return f"{what} ended{status}; its last words: {shortened(words[-1], LONGEST) if words else 'none'}"


def _why_snakemake(run: Run, log: Path) -> str:
    """Snakemake's own error in one line, without its place in the Snakefile."""
    if messages := [error.message for error in run.errors if error.message.strip()]:
        lines = [line.strip() for line in messages[-1].splitlines() if line.strip()]
        first, *rest = [line for line in lines if not line.startswith("File ")] or lines
        words = rest if rest and first.endswith(":") else [first, *rest]
    else:  # it did not come as far as its logger
        words = read_lines(log)[-1:] or ["Snakemake ended without a word"]
    return shortened(" ".join(words), LONGEST)
