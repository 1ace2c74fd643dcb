"""What a killed Snakemake leaves behind: slurm jobs in the queue, and marks on files that they have finished since."""

import os
import platform
import time
from base64 import urlsafe_b64decode
from pathlib import Path

from filelock import FileLock

from tandem.cluster.progress import say
from tandem.cluster.scheduler import COMMENT
from tandem.store.artifact import ARCHIVE_SUFFIX, MANIFEST
from tandem.store.environment import command_output
from tandem.store.files import is_locked, try_lock

_CANCEL_SECONDS = 60.0  # seconds for cancelled jobs to end
_RUNS = ".snakemake/tandem-runs"  # a file per Snakemake in a folder, locked while it runs
_own_runs: list[FileLock] = []  # held until this process ends


def list_left_jobs(folder: Path) -> list[str]:
    """Return the numbers of the slurm jobs that Snakemake submitted from a folder and that still exist.

    When Snakemake starts, these are jobs that a killed run has left behind.
    """
    queue = command_output("squeue", "-h", "--me", "-o", "%i|%k|%Z") or ""
    lines = [line.split("|", 2) for line in queue.splitlines()]
    own = [
        line for line in lines if len(line) == 3 and Path(line[2]).absolute() == folder.absolute()
    ]
    return [job for job, comment, _ in own if comment.startswith(COMMENT)]


def keep_finished(folder: Path) -> None:
    """Make Snakemake keep files that jobs have finished after it was killed.

    Snakemake marks a file as incomplete while its job runs. If it is killed, the mark remains. The next Snakemake would
    then delete the file and make it again, although the job, which survived, has finished it: days of a training.
    A stage writes its manifest last, so that an existing manifest is whole. An archive is in object storage whole or
    not at all.

    Args:
        folder: the folder in which Snakemake runs.
    """
    marks = folder / ".snakemake/incomplete"
    for mark in list(marks.rglob("*")):
        if mark.is_dir():
            continue
        # Snakemake cuts the base64 of a long path into folders, whose names begin with @.
        encoded = "".join(part.removeprefix("@") for part in mark.relative_to(marks).parts)
        try:
            made = urlsafe_b64decode(encoded).decode()
        except ValueError:  # not a mark but another file of Snakemake's
            continue
        if made.endswith(ARCHIVE_SUFFIX):
            mark.unlink(missing_ok=True)
        elif (folder / made).with_name(MANIFEST).is_file():
            # the manifest itself, or a file next to it: the state that a training's next part continues from
            mark.unlink(missing_ok=True)
            if Path(made).name == MANIFEST:
                say(f"{Path(made).parent} was finished after its Snakemake had ended: it stays")


def clear(folder: Path) -> None:
    """Cancel what a killed Snakemake has left in the queue, and wait: two jobs would write the same artifact.

    If another Snakemake runs in the folder, which is allowed if they build different files, the jobs may be its own and
    stay.
    """
    is_alone = _enter_run(folder)
    jobs = list_left_jobs(folder)
    if not jobs:
        return
    if not is_alone:
        say(
            f"another Snakemake runs in {folder}: {len(jobs)} slurm jobs stay, which may be its own: {', '.join(jobs)}"
        )
        return
    say(f"cancels {len(jobs)} slurm jobs that an earlier Snakemake has left: {', '.join(jobs)}")
    command_output("scancel", *jobs)
    deadline = time.monotonic() + _CANCEL_SECONDS
    while (jobs := list_left_jobs(folder)) and time.monotonic() < deadline:
        time.sleep(1)
    if jobs:
        say(f"still there: {', '.join(jobs)}")


def _enter_run(folder: Path) -> bool:
    """Lock this process' file among those of the folder's runs until it ends; return whether no other is locked."""
    runs = folder / _RUNS
    runs.mkdir(parents=True, exist_ok=True)
    own = runs / f"{platform.node()}-{os.getpid()}.lock"
    # lock it before the check: then of two that start at once neither concludes that it is the only one
    lock = try_lock(own)
    if lock is not None:
        _own_runs.append(lock)
    is_alone = True
    for path in runs.glob("*.lock"):
        if path == own:
            continue
        if is_locked(path):
            is_alone = False
        else:  # its process was killed
            path.unlink(missing_ok=True)
    return is_alone
