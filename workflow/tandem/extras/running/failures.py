"""Why a run failed: what the failed stages, or Snakemake itself, said last."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tandem.cluster.faults import DISK, RUN_AGAIN, WRITABLE, explain_fault
from tandem.errors import shortened
from tandem.extras.running.progress import BegunJob, Run, describe
from tandem.plan.graph import Stages

KILLED = 137  # the status of a process that was ended by SIGKILL
LONGEST = 600  # characters of Snakemake's own words
TRACEBACK = "Traceback (most recent call last)"
OWN = re.compile(r"tandem [\w-]+: ")
FAILED = re.compile(r"^ *log: (.+) \(check log file", re.MULTILINE)  # Snakemake's words about a job that has failed
ERROR = re.compile(r"[\w.]+(Error|Exception): ")  # the last line of a traceback
ERRNO = re.compile(r"\[Errno (\d+)\][^:]*(?:: '(.+?)')?")
PROTECTED = re.compile(r"Write-protected output files .*? affected files: (\S+)")


def failure_lines(run: Run, stages: Stages, log: Path, unlock: str) -> list[str]:
    """Why a run failed; the last line begins with `tandem` and says what to mend.

    Args:
        log: of Snakemake's own output.
        unlock: the command that frees a locked folder.
    """
    lines = [f"Snakemake's output: {log}"]
    for job in run.failed.values():
        what = describe(job, stages)
        lines += [f"{what} failed; its log: {', '.join(job.log) or log}", _why_job(job, run, f"tandem run: {what}")]
    if run.failed:
        return lines
    if any(error.exception == "LockException" for error in run.errors):
        problem = f"{Path.cwd()} is locked by another run, or by one that was killed"
        return [*lines, f"tandem run: {problem}; if none is running: {unlock}"]
    return [*lines, f"tandem run: {snakemake_words(run, log)}"]


def _why_job(job: BegunJob, run: Run, what: str) -> str:
    """The `tandem …:` line at the end of a job's log, or its last words."""
    if own := stage_words(job.log):
        return own
    statuses = [int(status) for error in run.errors for status in re.findall(r"exit status (\d+)", error.message)]
    if KILLED in statuses:
        return f"{what} was killed, perhaps for want of memory; the same command goes on with what is done"
    status = f" with status {statuses[-1]}" if statuses else ""
    words = read_lines(*job.log)
    return f"{what} ended{status}; its last words: {shortened(words[-1], LONGEST) if words else 'none'}"


def stage_words(logs: Iterable[str]) -> str:
    """A stage's last `tandem …:` line and what follows; empty where it said none, or fell over after it."""
    words = read_lines(*logs)
    own = max((at for at, line in enumerate(words) if OWN.match(line)), default=len(words))
    return "" if any(line.startswith(TRACEBACK) for line in words[own:]) else "\n".join(words[own:])


def words_of_failed_stages(logs: Iterable[str]) -> str:
    """The last words of the stages that failed, by Snakemake's logs of a run; empty if they left none."""
    named = dict.fromkeys(FAILED.findall("\n".join(read_lines(*logs))))
    return "\n".join(filter(None, (stage_words(paths.split(", ")) for paths in named)))


def read_lines(*logs: str | Path) -> list[str]:
    """The lines of logs without the blank ones; a log that cannot be read has none."""
    lines = list[str]()
    for path in logs:
        with suppress(OSError):
            lines += Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if line.strip()]


def snakemake_words(run: Run, log: Path) -> str:
    """Snakemake's own error in one line, without its place in the Snakefile or its traceback."""
    if messages := [error.message for error in run.errors if error.message.strip()]:
        lines = [line.strip() for line in messages[-1].splitlines() if line.strip()]
        lines = lines[max((at for at, line in enumerate(lines) if ERROR.match(line)), default=0) :]
        first, *rest = [line for line in lines if not line.startswith("File ")] or lines
        words = rest if rest and first.endswith(":") else [first, *rest]
    else:  # it did not come as far as its logger
        words = read_lines(log)[-1:] or ["Snakemake ended without a word"]
    line = " ".join(words)
    return shortened(_explain_disk(line) or line, LONGEST)


def _explain_disk(line: str) -> str | None:
    """What Snakemake says about the disk, with what to do; None for anything else."""
    if match := PROTECTED.search(line):
        return f"{match[1]}: write-protected; {WRITABLE}, {RUN_AGAIN}"
    if (match := ERRNO.search(line)) and (number := int(match[1])) in DISK:
        return explain_fault(OSError(number, os.strerror(number), match[2]))
    return None
