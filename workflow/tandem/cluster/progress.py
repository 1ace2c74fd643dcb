"""Progress of long work: a bar on a terminal, a line every so often in a log, and a file for `tandem top`.

A job's file lies beside its output and is removed when the job ends. It is one line of JSON, replaced as a whole every
two seconds at most. A job that was killed leaves it: its process is gone then, or the time of writing is long past.
"""

import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from tandem.redaction import without_secrets
from tandem.stages.base import flag_value
from tandem.store.artifact import MANIFEST
from tandem.store.environment import peak_mib
from tandem.store.files import replacing
from tandem.store.job import Draft, Job

PROGRESS_FILE = "progress.json"
SECONDS_PER_WRITE = 2.0  # seconds between two writings of the file
_SECONDS_PER_LINE = 10.0  # seconds between two lines in a log; a bar moves ten times as often


def format_duration(seconds: float) -> str:
    """Format seconds: `47 s`, `3 min 20 s`, `1 h 56 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def say(line: str, end: str = "\n") -> None:
    """Print one line on standard error, without secrets, and flush it, so that a log shows it at once."""
    # work goes on if nobody reads any more: a pipe or a terminal that is closed
    with suppress(OSError):
        print(without_secrets(line), end=end, file=sys.stderr, flush=True)


def warn(job: Job[Any], draft: Draft, line: str) -> None:
    """Print a warning of a stage and keep it in its manifest, from where tables and the report repeat it."""
    draft.facts.setdefault("warnings", []).append(without_secrets(line))
    say(f"{job.kind} {job.key} · warning: {line}")


@dataclass(eq=False)
class Progress:
    """Counts work and reports rate and time left.

    Example: `with Progress("encode de-3f2a", total=37_000, unit="passages") as progress: progress.add(64, tokens=4096)`

    Attributes:
        total: amount of work; 0 if unknown.
        done: finished work; what it is at first counts towards the total, not towards the rate.
        quiet: print nothing: another process that does the same work does.
    """

    label: str
    total: int
    unit: str
    done: int = 0
    quiet: bool = False

    def __post_init__(self) -> None:
        self.before, self.tokens, self.bar = self.done, 0, sys.stderr.isatty()
        self.every = _SECONDS_PER_LINE / 10 if self.bar else _SECONDS_PER_LINE
        self.started = self.printed = self.filed = time.monotonic()

    def __enter__(self) -> Self:
        if not self.quiet:
            self._file("")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None and not self.quiet:
            self._print(end=True)

    def add(self, count: int, tokens: int = 0, note: str = "") -> None:
        """Count finished work; prints a line if it is time for one. `note` joins the line (a loss, say)."""
        self.done += count
        self.tokens += tokens
        if self.quiet:
            return
        now = time.monotonic()
        if now - self.printed >= self.every:
            self._print(note)
        if now - self.filed >= SECONDS_PER_WRITE:
            self._file(note)

    def _pace(self) -> tuple[float, float, float | None]:
        """Return seconds so far, units per second, and seconds left."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        rate = (self.done - self.before) / seconds
        left = (self.total - self.done) / rate if self.total and rate > 0 else None
        return seconds, rate, left

    def _file(self, note: str) -> None:
        self.filed = time.monotonic()
        _, rate, left = self._pace()
        state = {
            "label": self.label,
            "done": self.done,
            "total": self.total,
            "unit": self.unit,
            "note": note,
        }
        write_state(**state, rate=round(rate, 3), left=None if left is None else round(left))

    def _print(self, note: str = "", end: bool = False) -> None:
        self.printed = time.monotonic()
        seconds, rate, left = self._pace()
        total = f"/{self.total:,}" if self.total else ""
        parts = [
            self.label,
            f"{self.done:,}{total} {self.unit}",
            note,
            f"{rate:,.1f} {self.unit}/s",
        ]
        if self.tokens:
            parts.append(f"{self.tokens / seconds:,.0f} tok/s")
        if end:
            parts.append(f"took {format_duration(seconds)}")
        elif left is not None:
            parts.append(f"{format_duration(left)} left")
        line = " · ".join(filter(None, parts))
        if self.bar:
            filled = int(20 * self.done / self.total) if self.total else 0
            say(f"\r\x1b[K[{'█' * filled:<20}] {line}", end="\n" if end else "")
        else:
            say(line)


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


# of the job that this process does, and its file
_current: tuple[ProgressRecord, Path] | None = None


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


@contextmanager
def keep_progress_file(words: list[str]) -> Iterator[None]:
    """Keep a progress file while a command line with `--out` runs; of several ranks only the first writes one."""
    global _current
    out = Path(flag_value(words, "--out"))
    if not out.name or os.environ.get("RANK", "0") != "0":
        yield
        return
    path, folder = get_progress_path(out), out.parent if out.name == MANIFEST else out.parents[1]
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
    _current = job, path
    try:
        write_state()
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        _current = None


def write_state(**state: Any) -> None:
    """Replace the job's file by one with another state; a full or read-only disk ends no job."""
    if _current is None:
        return
    job, path = _current
    state |= {"updated": round(time.time(), 1), "peak_memory_mib": peak_mib()}
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        state["gpu_memory_mib"] = int(cuda.max_memory_reserved()) >> 20
    line = job.model_copy(update=state).model_dump_json(exclude_none=True)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_text(line + "\n", encoding="utf-8")
