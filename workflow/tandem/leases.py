"""Leases of this machine's GPUs, so that parallel jobs get different ones: Snakemake counts GPUs but hands out no ids.

A job locks one file per id and shows the ids it got to CUDA. The kernel frees a lock when its process ends, however it
ends. Who waits stands in a queue of files whose names begin with the time, each locked by its process; only the first
takes GPUs, all it wants at once, so that nobody starves and no two jobs wait for one another's half.
"""

import fcntl
import os
import platform
import re
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from tandem.errors import UserError
from tandem.progress import duration, say

VISIBLE, IDS, FOLDER = "CUDA_VISIBLE_DEVICES", "TANDEM_GPUS", "TANDEM_LEASES"
HIDDEN = ("", "-1", "NoDevFiles")  # what hides every GPU from CUDA; the last is slurm's word
POLL, EVERY = 0.2, 60.0  # seconds between two looks, and between two lines that say who waits


def lease(count: int, label: str) -> None:
    """Show `count` GPUs that no other job has to this process and its children, until it ends; wait if none are free.

    `CUDA_VISIBLE_DEVICES` with as many ids as are wanted is a scheduler's word: nothing is leased. With more ids, and
    without it, the ids are leased from. A machine without GPUs leases none.

    Args:
        count: how many.
        label: who asks, for the line that says that it waits.
    Raises:
        UserError: there are fewer GPUs, or the folder of the locks cannot be written.
    """
    told = os.environ.get(VISIBLE)
    ids = offered(os.environ)
    if not ids:
        return
    if len(ids) < count:
        named = f"{VISIBLE} names" if told else f"{IDS} names" if IDS in os.environ else "this machine has"
        raise UserError(f"{label}: execution.devices is {count}, but {named} {len(ids)} GPUs ({', '.join(ids)})")
    if told and len(ids) == count:
        return
    if not told:
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
    told = environment.get(VISIBLE, environment.get(IDS))
    if told is None:
        return _listed()
    return [name for name in dict.fromkeys(map(str.strip, told.split(","))) if name not in HIDDEN]


def _listed() -> list[str]:
    """Indices of the GPUs by the driver's own tool, which starts no CUDA; none where there is no driver."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return re.findall(r"^GPU (\d+):", done.stdout, re.MULTILINE) if done.returncode == 0 else []


def _folder(environment: Mapping[str, str]) -> Path:
    """Where the locks lie: one folder per user and machine, for homes are shared; `TANDEM_LEASES` names another."""
    told = environment.get(FOLDER) or f"~/.cache/tandem/leases/{platform.node()}"
    if VISIBLE in environment and "SLURM_JOB_ID" in environment:
        told += f"/slurm-{environment['SLURM_JOB_ID']}"  # slurm may count each job's GPUs from 0
    return Path(told).expanduser().absolute()


def _wait(folder: Path, ids: list[str], count: int, label: str) -> list[str]:
    """Take `count` of the ids when it is this process' turn and they are free; their files stay open, and locked."""
    queue = folder / "queue"
    queue.mkdir(parents=True, exist_ok=True)
    ticket, held = _ticket(queue)
    began, told = time.monotonic(), -EVERY
    try:
        while not (taken := _take(folder, ids, count) if _first(queue, ticket) else []):
            waited = time.monotonic() - began
            if waited - told >= EVERY:
                say(f"{label} · waits for {count} of {len(ids)} GPUs · {duration(waited)}")
                told = waited
            time.sleep(POLL)
        return taken
    finally:
        ticket.unlink(missing_ok=True)
        os.close(held)


def _take(folder: Path, ids: list[str], count: int) -> list[str]:
    """`count` ids that were free and are locked now, or none."""
    taken: dict[str, int] = {}
    for name in ids:
        if len(taken) < count and (lock := _lock(folder / f"{name.replace('/', '_')}.lock")) is not None:
            taken[name] = lock
    if len(taken) < count:
        for lock in taken.values():
            os.close(lock)
        return []
    return list(taken)


def _lock(path: Path, create: int = os.O_CREAT) -> int | None:
    """The file, opened and locked until it is closed or the process ends; None where another process has the lock."""
    opened = os.open(path, os.O_RDWR | create, 0o666)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        return None
    return opened


def _ticket(queue: Path) -> tuple[Path, int]:
    """A place at the end of the queue; the file is locked before it gets the name that the others see."""
    name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
    held = _lock(queue / f".{name}")
    assert held is not None  # nobody else knows the name
    os.rename(queue / f".{name}", queue / name)
    return queue / name, held


def _first(queue: Path, ticket: Path) -> bool:
    """Whether nobody alive stands before this ticket; what the dead left there is removed."""
    for path in sorted(queue.glob("[0-9]*")):
        if path == ticket:
            break
        try:
            lock = _lock(path, create=0)
        except FileNotFoundError:  # it has just been served
            continue
        if lock is None:
            return False
        path.unlink(missing_ok=True)
        os.close(lock)
    return True
