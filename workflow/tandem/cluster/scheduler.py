"""Lease this machine's GPUs, and query or requeue the slurm job in which this process runs.

Snakemake counts GPUs but assigns no ids, so parallel jobs lease them: a job locks one file per id, which the kernel
frees when its process ends. Waiting jobs queue up as locked files named by the time. Only the first of them takes GPUs,
all that it needs at once: no job starves, and no two jobs wait for each other's GPUs.

If a slurm job of Snakemake's is requeued, it keeps its number: Snakemake sees it run again and counts no failure, so
`retries` count only trainings that failed without progress.
"""

import os
import platform
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from tandem.cluster.progress import format_duration, say
from tandem.errors import UserError
from tandem.stages import KINDS
from tandem.stages.base import flag_value
from tandem.store.environment import command_output
from tandem.store.files import try_lock

_VISIBLE, _IDS, _FOLDER = "CUDA_VISIBLE_DEVICES", "TANDEM_GPUS", "TANDEM_LEASES"
DEVICES = Path("/dev")
_HIDING = ("", "-1", "NoDevFiles")  # values that hide every GPU from CUDA; the last is slurm's
# seconds between two attempts, and between two lines that state who waits
_POLL_SECONDS, _SECONDS_PER_LINE = 0.2, 60.0
_JOB, _END = "SLURM_JOB_ID", "SLURM_JOB_END_TIME"
# how often slurm had put the job back when it started; not set the first time
RESTARTS = "SLURM_RESTART_COUNT"
# squeue's [days-][hours:]minutes:seconds
_TIME_LEFT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
COMMENT = "rule_"  # what the comment of Snakemake's jobs begins with
SIGNALLED = 128  # a status from here on: ended by a signal
_leased: list[FileLock] = []  # held until this process ends


def lease(count: int, label: str) -> None:
    """Lease `count` GPUs to this process and its children, until it ends; wait until so many are free.

    `CUDA_VISIBLE_DEVICES` with exactly `count` ids is a scheduler's choice: nothing is leased. With more ids, or
    without this variable, GPUs are leased from those that are offered (`list_offered`). A machine without GPUs leases
    none. `label` names the job that waits. Too few GPUs, or a folder of the locks that cannot be written, are a
    `UserError`.
    """
    visible = os.environ.get(_VISIBLE)
    ids = list_offered(os.environ)
    if not ids:
        return
    if len(ids) < count:
        named = f"{_IDS} names" if _IDS in os.environ else "this machine has"
        if visible:
            named = f"{_VISIBLE} names"
        raise UserError(
            f"{label}: execution.devices is {count}, but {named} {len(ids)} GPUs ({', '.join(ids)})"
        )
    if visible and len(ids) == count:
        return
    if not visible:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # count as nvidia-smi does
    folder = _get_lock_folder(os.environ)
    try:
        taken = _wait(folder, ids, count, label)
    except OSError as error:
        at = error.filename or folder
        raise UserError(
            f"{at}: cannot be locked ({error.strerror}); set {_FOLDER} to a folder"
        ) from None
    os.environ[_VISIBLE] = ",".join(taken)


def list_offered(environment: Mapping[str, str]) -> list[str]:
    """Return the GPUs' ids to choose from: `CUDA_VISIBLE_DEVICES`, else `TANDEM_GPUS`, else those of `nvidia-smi -L`.

    A container may lack it: its GPUs are then counted by their device files, `/dev/nvidia0` and so on.
    """
    names = environment.get(_VISIBLE, environment.get(_IDS))
    if names is None:  # indices by the driver's own tool, which starts no CUDA
        if (listed := command_output("nvidia-smi", "-L")) is not None:
            return re.findall(r"^GPU (\d+):", listed, re.MULTILINE)
        return [str(index) for index, _ in enumerate(DEVICES.glob("nvidia[0-9]*"))]
    return [name for name in dict.fromkeys(map(str.strip, names.split(","))) if name not in _HIDING]


def _get_lock_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the locks: one per user and machine, since machines may share homes.

    `TANDEM_LEASES` names another.
    """
    folder = environment.get(_FOLDER) or f"~/.cache/tandem/leases/{platform.node()}"
    if _VISIBLE in environment and _JOB in environment:
        folder += f"/slurm-{environment[_JOB]}"  # slurm may count each job's GPUs from 0
    return Path(folder).expanduser().absolute()


def _wait(folder: Path, ids: list[str], count: int, label: str) -> list[str]:
    """Wait until it is this process' turn and `count` of the ids are free; lock and return them."""
    queue, name = folder / "queue", f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
    queue.mkdir(parents=True, exist_ok=True)
    began, reported = time.monotonic(), -_SECONDS_PER_LINE
    # a ticket, locked before it gets the name that the others see
    with FileLock(queue / f".{name}"):
        ticket = (queue / f".{name}").rename(queue / name)
        try:
            while not (_is_next(ticket) and (taken := _take(folder, ids, count))):
                waited = time.monotonic() - began
                if waited - reported >= _SECONDS_PER_LINE:
                    say(
                        f"{label} · waits for {count} of {len(ids)} GPUs · {format_duration(waited)}"
                    )
                    reported = waited
                time.sleep(_POLL_SECONDS)
            return taken
        finally:
            ticket.unlink(missing_ok=True)


def _take(folder: Path, ids: list[str], count: int) -> list[str]:
    taken: dict[str, FileLock] = {}
    for name in ids:
        if len(taken) < count and (lock := try_lock(folder / f"{name.replace('/', '_')}.lock")):
            taken[name] = lock
    if len(taken) < count:
        for lock in taken.values():
            lock.release()
        return []
    _leased.extend(taken.values())
    return list(taken)


def _is_next(ticket: Path) -> bool:
    """Return whether no living process stands before this ticket; tickets of ended processes are removed."""
    for path in sorted(ticket.parent.glob("[0-9]*")):
        if path == ticket:
            break
        lock = try_lock(path)
        if lock is None:
            return False
        path.unlink(missing_ok=True)
        lock.release()
    return True


def read_seconds_left(environment: Mapping[str, str]) -> float | None:
    """Return how long this process' slurm job still has, in seconds; None without slurm, or if it is unknown.

    slurm's controller states it by its own clock, from which this machine's may differ. If the controller does not
    answer, it follows, by this machine's clock, from the job's end, which slurm sets from 23.02 on.
    """
    if _JOB not in environment:
        return None
    left = command_output("squeue", "-h", "-j", environment[_JOB], "-o", "%L") or ""
    if match := _TIME_LEFT.fullmatch(left):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24.0 + hours) * 60 + minutes) * 60 + seconds
    end = environment.get(_END, "")
    return float(end) - time.time() if end.isdecimal() else None


def requeue(environment: Mapping[str, str]) -> bool:
    """Put this process' slurm job back into the queue, which soon ends the process; False where that is impossible.

    Only a job that Snakemake submitted is put back: another script may hold steps that must not be done twice. A job
    whose node was cut off is not put back: slurm has started it elsewhere meanwhile, under the same number.
    """
    if _JOB not in environment:
        return False
    restarts = command_output("squeue", "-h", "-j", environment[_JOB], "-O", "RestartCnt") or ""
    if restarts.strip() not in ("", environment.get(RESTARTS, "0")):
        return False
    comment = command_output("squeue", "-h", "-j", environment[_JOB], "-o", "%k") or ""
    return (
        comment.startswith(COMMENT)
        and command_output("scontrol", "requeue", environment[_JOB]) is not None
    )


def find_newest(out: Path) -> str:
    """Return the name of a training's newest complete checkpoint; empty without one."""
    return max((path.parent.name for path in out.glob("checkpoints/step-*/state.json")), default="")


class Try:
    """Follow one try of a stage's command line: a training that fails after some progress goes back into the queue."""

    def __init__(self, words: list[str]) -> None:
        kind = KINDS.get(words[0])
        out = flag_value(words, "--out")
        self.out = (
            Path(out).parent if out and kind and kind.ranks and "RANK" not in os.environ else None
        )
        self.before = find_newest(self.out) if self.out else ""

    def failed(self, status: int = 1) -> None:
        """Requeue the job of a stage that has failed, but not if it was cancelled; not to be called for user errors."""
        if (
            self.out
            and status not in range(SIGNALLED, 256)
            and find_newest(self.out) > self.before
            and requeue(os.environ)
        ):
            say(
                f"{self.out.name} has failed after {find_newest(self.out)}; its slurm job is back in the queue"
            )
