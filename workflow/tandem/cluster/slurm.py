"""The slurm job that this process runs in: when it ends, and its way back into the queue.

A job of Snakemake's that is requeued keeps its number: Snakemake sees it run again and counts no failure, so `retries`
count only trainings that failed without progress.
"""

import os
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from tandem.cluster.progress import say
from tandem.stages import KINDS
from tandem.stages.base import flag_value
from tandem.store.environment import printed

JOB, END = "SLURM_JOB_ID", "SLURM_JOB_END_TIME"
COMMENT = "rule_"  # what the comment of Snakemake's jobs begins with
PATIENCE = 60.0  # seconds for cancelled jobs to end
SIGNALLED = 128  # a status from here on: ended by a signal


def end(environment: Mapping[str, str]) -> float | None:
    """When this process' slurm job ends, in seconds since the epoch; None without slurm, its answer or a time limit."""
    if JOB not in environment:
        return None
    seconds = environment.get(END, "")  # from slurm 23.02 on
    if seconds.isdecimal():
        return float(seconds)
    try:
        return datetime.fromisoformat(printed("squeue", "-h", "-j", environment[JOB], "-o", "%e") or "").timestamp()
    except ValueError:
        return None


def requeue(environment: Mapping[str, str]) -> bool:
    """Put this process' job back into the queue, which ends the process soon; False where that is impossible.

    Only jobs that Snakemake has submitted: another script may have done something before that must not be done again.
    """
    if JOB not in environment:
        return False
    comment = printed("squeue", "-h", "-j", environment[JOB], "-o", "%k") or ""
    return comment.startswith(COMMENT) and printed("scontrol", "requeue", environment[JOB]) is not None


def newest(out: Path) -> str:
    """The newest complete checkpoint of a training, by name; empty where there is none."""
    return max((path.parent.name for path in out.glob("checkpoints/step-*/state.json")), default="")


class Try:
    """One try of a stage's command line: a training that fails after some progress goes back into the queue."""

    def __init__(self, words: list[str]) -> None:
        kind = KINDS.get(words[0])
        out = flag_value(words, "--out")
        self.out = Path(out).parent if out and kind and kind.ranks and "RANK" not in os.environ else None
        self.before = newest(self.out) if self.out else ""

    def failed(self, status: int = 1) -> None:
        """Requeue the job of a stage that has failed, but not if it was cancelled; not to be called for user errors."""
        if self.out and status not in range(SIGNALLED, 256) and newest(self.out) > self.before and requeue(os.environ):
            say(f"{self.out.name} has failed after {newest(self.out)}; its slurm job is back in the queue")


def leftovers(folder: Path) -> list[str]:
    """The numbers of a folder's slurm jobs that Snakemake submitted: at its start, those that a killed one has left."""
    queue = printed("squeue", "-h", "--me", "-o", "%i|%k|%Z") or ""
    lines = [line.split("|", 2) for line in queue.splitlines()]
    own = [line for line in lines if len(line) == 3 and Path(line[2]).absolute() == folder.absolute()]
    return [job for job, comment, _ in own if comment.startswith(COMMENT)]


def clear(folder: Path) -> None:
    """Cancel what a killed Snakemake has left in the queue, and wait: two jobs would write the same artifact."""
    jobs = leftovers(folder)
    if not jobs:
        return
    say(f"cancels {len(jobs)} slurm jobs that an earlier Snakemake has left: {', '.join(jobs)}")
    printed("scancel", *jobs)
    deadline = time.monotonic() + PATIENCE
    while (jobs := leftovers(folder)) and time.monotonic() < deadline:
        time.sleep(1)
    if jobs:
        say(f"still there: {', '.join(jobs)}")
