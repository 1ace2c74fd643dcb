"""A file beside a job's output that says how far it is, for `tandem top` and `tandem run`.

It is removed when the job ends. It is one line of JSON, replaced as a whole every two seconds at most. A job that was
killed leaves it: its process is gone then, or the time of writing is long past.
"""

import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tandem.cluster.progress import Progress, watchers
from tandem.stages.base import flag_value
from tandem.store.artifact import MANIFEST
from tandem.store.environment import peak_mib
from tandem.store.files import replacing

PROGRESS_FILE = "progress.json"


class ProgressRecord(BaseModel):
    """Describe a job in its progress file: which it is, and what it does now.

    Attributes:
        pids: the namespace that `pid` is counted in.
        started: seconds since the epoch, as `updated`.
        rate: units per second; `left`: seconds.
        peak_memory_mib: the most of this process, and of its GPU, which is asked only where torch uses it already.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    command: str
    key: str
    out: str = ""
    pid: int
    node: str
    pids: str | None = None
    slurm: str | None = None
    started: float
    updated: float
    label: str = ""
    done: int | None = None
    total: int | None = None
    unit: str | None = None
    note: str = ""
    rate: float | None = None
    left: float | None = None
    peak_memory_mib: int | None = None
    gpu_memory_mib: int | None = None


def get_progress_path(out: Path) -> Path:
    """Return the file of the job that makes `out`.

    `progress.json` beside `stage.json`, `<name>.progress.json` of a shard.
    """
    return out.with_name(PROGRESS_FILE if out.name == MANIFEST else f"{out.stem}.{PROGRESS_FILE}")


def get_pid_namespace() -> str | None:
    """Return the namespace that process ids are counted in, a machine's or a container's.

    None where that is unknown.
    """
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


class ProgressFile:
    """Write what a job does into its file.

    Attributes:
        job: which it is.
        path: of the file.
    """

    def __init__(self, job: ProgressRecord, path: Path) -> None:
        self.job, self.path = job, path

    def watch(self, progress: Progress, note: str) -> None:
        """Write what is counted."""
        _, rate, left = progress.pace()
        self.write(
            label=progress.label,
            done=progress.done,
            total=progress.total,
            unit=progress.unit,
            note=note,
            rate=round(rate, 3),
            left=None if left is None else round(left),
        )

    def write(self, **state: Any) -> None:
        """Replace the file by one with another state; a full or read-only disk ends no job."""
        state |= {"updated": round(time.time(), 1), "peak_memory_mib": peak_mib()}
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is not None and cuda.is_initialized():
            state["gpu_memory_mib"] = int(cuda.max_memory_reserved()) >> 20
        line = self.job.model_copy(update=state).model_dump_json(exclude_none=True)
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as partial:
                partial.write_text(line + "\n", encoding="utf-8")


@contextmanager
def keep_progress_file(words: list[str]) -> Iterator[None]:
    """Keep a progress file while a command line with `--out` runs; of several ranks only the first writes one."""
    out = Path(flag_value(words, "--out"))
    if not out.name or os.environ.get("RANK", "0") != "0":
        yield
        return
    folder = out.parent if out.name == MANIFEST else out.parents[1]
    now = round(time.time(), 1)
    job = ProgressRecord(
        command=words[0],
        key=folder.name,
        out=str(out),
        pid=os.getpid(),
        node=platform.node(),
        pids=get_pid_namespace(),
        slurm=os.environ.get("SLURM_JOB_ID"),
        started=now,
        updated=now,
    )
    file = ProgressFile(job, get_progress_path(out))
    watchers.append(file.watch)
    try:
        file.write()
        yield
    finally:
        watchers.remove(file.watch)
        with suppress(OSError):
            file.path.unlink(missing_ok=True)
