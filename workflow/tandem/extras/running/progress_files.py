"""A file next to a job's output that shows the job's progress, for `tandem top` and `tandem run`.

It is one line of JSON, replaced as a whole at most every two seconds, and is removed when the job ends. A killed job
leaves its file: then its process no longer exists, or the file was last written long ago.
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
    """The content of a job's progress file: which job it is, and what it is doing.

    Attributes:
        pids: the namespace that `pid` belongs to.
        started: seconds since the epoch, like `updated`.
        rate: units per second; `left`: seconds.
        peak_memory_mib: the peak of this process, and of its GPU, which is queried only if torch already uses it.
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
    """Return the progress file of the job that writes `out`.

    `progress.json` next to `stage.json`; for a shard `<name>.progress.json`.
    """
    return out.with_name(PROGRESS_FILE if out.name == MANIFEST else f"{out.stem}.{PROGRESS_FILE}")


def get_pid_namespace() -> str | None:
    """Return the namespace of process ids, which is that of a machine or of a container.

    None if it is unknown.
    """
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


class ProgressFile:
    """Writes what a job is doing into its file.

    Attributes:
        job: the fields that identify the job.
        path: the path of the file.
    """

    def __init__(self, job: ProgressRecord, path: Path) -> None:
        self.job, self.path = job, path

    def watch(self, progress: Progress, note: str) -> None:
        """Write the state of a progress counter."""
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
        """Replace the file by one with another state; a full or read-only disk does not end the job."""
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
    """Keep a progress file while a command line with `--out` runs; of several ranks, only the first writes one."""
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
