"""Leases of this machine's GPUs, so that parallel jobs get different ones: Snakemake counts GPUs but hands out no ids.

A job locks one file per id, which the kernel frees when its process ends. Waiting jobs queue up as locked files named
by the time; only the first takes GPUs, all it needs at once: nobody starves, no two wait for one another's half.
"""

import os
import platform
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from tandem.cluster.progress import duration, say
from tandem.errors import UserError
from tandem.store.environment import printed
from tandem.store.files import try_lock

VISIBLE, IDS, FOLDER = "CUDA_VISIBLE_DEVICES", "TANDEM_GPUS", "TANDEM_LEASES"
HIDDEN = ("", "-1", "NoDevFiles")  # what hides every GPU from CUDA; the last is slurm's word
POLL, EVERY = 0.2, 60.0  # seconds between two attempts, and between two lines that say who waits
_leased: list[FileLock] = []  # held until this process ends


def lease(count: int, label: str) -> None:
    """Show `count` GPUs that no other job has to this process and its children, until it ends; wait if none are free.

    `CUDA_VISIBLE_DEVICES` with exactly `count` ids is a scheduler's choice: nothing is leased. With more ids, and
    without it, the ids are leased from. A machine without GPUs leases none. `label` names the job that waits.

    Raises:
        UserError: there are fewer GPUs, or the folder of the locks cannot be written.
    """
    visible = os.environ.get(VISIBLE)
    ids = offered(os.environ)
    if not ids:
        return
    if len(ids) < count:
        named = f"{VISIBLE} names" if visible else f"{IDS} names" if IDS in os.environ else "this machine has"
        raise UserError(f"{label}: execution.devices is {count}, but {named} {len(ids)} GPUs ({', '.join(ids)})")
    if visible and len(ids) == count:
        return
    if not visible:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # count as nvidia-smi does
    folder = _folder(os.environ)
    try:
        taken = _wait(folder, ids, count, label)
    except OSError as error:
        at = error.filename or folder
        raise UserError(f"{at}: cannot be locked ({error.strerror}); set {FOLDER} to a folder") from None
    os.environ[VISIBLE] = ",".join(taken)


def offered(environment: Mapping[str, str]) -> list[str]:
    """The ids to choose from: of `CUDA_VISIBLE_DEVICES`, else of `TANDEM_GPUS`, else what `nvidia-smi -L` lists."""
    names = environment.get(VISIBLE, environment.get(IDS))
    if names is None:
        return _listed()
    return [name for name in dict.fromkeys(map(str.strip, names.split(","))) if name not in HIDDEN]


def _listed() -> list[str]:
    """Indices of the GPUs by the driver's own tool, which starts no CUDA."""
    return re.findall(r"^GPU (\d+):", printed("nvidia-smi", "-L") or "", re.MULTILINE)


def _folder(environment: Mapping[str, str]) -> Path:
    """Where the locks lie: one folder per user and machine, for homes are shared; `TANDEM_LEASES` names another."""
    folder = environment.get(FOLDER) or f"~/.cache/tandem/leases/{platform.node()}"
    if VISIBLE in environment and "SLURM_JOB_ID" in environment:
        folder += f"/slurm-{environment['SLURM_JOB_ID']}"  # slurm may count each job's GPUs from 0
    return Path(folder).expanduser().absolute()


def _wait(folder: Path, ids: list[str], count: int, label: str) -> list[str]:
    """Take `count` of the ids when it is this process' turn and they are free; they stay locked."""
    queue, name = folder / "queue", f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
    queue.mkdir(parents=True, exist_ok=True)
    began, printed = time.monotonic(), -EVERY
    with FileLock(queue / f".{name}"):  # a ticket, locked before it gets the name that the others see
        ticket = (queue / f".{name}").rename(queue / name)
        try:
            while not (_is_next(ticket) and (taken := _take(folder, ids, count))):
                waited = time.monotonic() - began
                if waited - printed >= EVERY:
                    say(f"{label} · waits for {count} of {len(ids)} GPUs · {duration(waited)}")
                    printed = waited
                time.sleep(POLL)
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
    """Whether no living process stands before this ticket; tickets of ended processes are removed."""
    for path in sorted(ticket.parent.glob("[0-9]*")):
        if path == ticket:
            break
        if (lock := try_lock(path)) is None:
            return False
        path.unlink(missing_ok=True)
        lock.release()
    return True
