"""A running job's progress as a file beside its output, for `tandem top`; removed when the job ends.

The file is one line of JSON, replaced as a whole every two seconds at most. A job that was killed leaves it: its
process is gone then, or its time of writing is long past.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tandem.memory import peak_mib

FILE = "progress.json"
EVERY = 2.0  # seconds between two writings


class _Job:
    """The job that this process does, if it is one; `path` is its file."""

    path: Path | None = None
    told: dict[str, Any] = {}  # noqa: RUF012  (one job a process)


def place(out: Path) -> Path:
    """The file of the job that makes `out`: `progress.json` beside `stage.json`, `<name>.progress.json` of a shard."""
    return out.with_name(FILE if out.name == "stage.json" else f"{out.stem}.{FILE}")


def counted_by() -> str | None:
    """What counts the process ids here, a machine or a container on it; None where the system does not tell."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


@contextmanager
def shown(words: list[str]) -> Iterator[None]:
    """Show the job of a command line while it runs; only the first of several ranks does.

    Args:
        words: after `python -m tandem`; without `--out` nothing is shown.
    """
    if "--out" not in words[:-1] or os.environ.get("RANK", "0") != "0":
        yield
        return
    out = Path(words[words.index("--out") + 1])
    folder = out.parent if out.name == "stage.json" else out.parents[1]
    _Job.path = place(out)
    _Job.told = {"command": words[0], "key": folder.name, "out": str(out), "pid": os.getpid(), "node": platform.node()}
    _Job.told |= {"slurm": os.environ.get("SLURM_JOB_ID"), "started": round(time.time(), 1), "pids": counted_by()}
    try:
        write({})
        yield
    finally:
        with suppress(OSError):
            _Job.path.unlink(missing_ok=True)
        _Job.path = None


def write(told: dict[str, Any]) -> None:
    """Replace the job's file: what it does now, and its memory; a full or read-only disk ends no job."""
    if _Job.path is None:
        return
    now = {**_Job.told, "updated": round(time.time(), 1), **_memory(), **told}
    partial = _Job.path.with_name(f".{_Job.path.name}.{os.getpid()}")
    with suppress(OSError):
        _Job.path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(now, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(partial, _Job.path)
        return
    with suppress(OSError):
        partial.unlink(missing_ok=True)


def _memory() -> dict[str, int]:
    """MiB: the largest this process has had, and on its GPU; the GPU is asked only where torch uses it already."""
    made = {"peak_memory_mib": peak_mib()}
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        made["gpu_memory_mib"] = int(cuda.max_memory_reserved()) >> 20
    return made
