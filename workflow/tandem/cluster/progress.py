"""Report the progress of long work: by a bar on a terminal, by lines in a log, and to watchers of packages."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tandem.plugins import Declarations
from tandem.redaction import without_secrets
from tandem.store.job import Draft, Job

_SECONDS_PER_LINE = 10.0  # seconds between two lines in a log; a bar moves ten times as often


# By name: `module:function` of `(words)`, a context that a job with this command line runs in.
JOB_CONTEXTS: Declarations[str] = Declarations()
# Called with a `Progress` and the note of its line, when it begins and every two seconds at most.
watchers: list[Callable[["Progress", str], None]] = []
SECONDS_PER_CALL = 2.0  # seconds between two calls of `watchers`


def register_job_context(name: str, context: str) -> None:
    """Add a context in which jobs run; it may add to `watchers`."""
    JOB_CONTEXTS[name] = context


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
    # work continues if nobody reads any more: a pipe or a terminal that is closed
    with suppress(OSError):
        print(without_secrets(line), end=end, file=sys.stderr, flush=True)


def warn(job: Job[Any], draft: Draft, line: str) -> None:
    """Print a warning of a stage and record it in its manifest, from where tables and the report repeat it."""
    draft.facts.setdefault("warnings", []).append(without_secrets(line))
    say(f"{job.kind} {job.key} · warning: {line}")


@dataclass(eq=False)
class Progress:
    """Count work, and report rate and time left.

    Example: `with Progress("encode de-3f2a", total=37_000, unit="passages") as progress: progress.add(64, tokens=4096)`

    Attributes:
        total: amount of work; 0 if unknown.
        done: finished work; its initial value counts towards the total, not towards the rate.
        quiet: print nothing, since another process that does the same work prints.
        tokens_ahead: tokens of the work that is unfinished at the start; 0 if unknown. If they are known, the time that
            is left follows from them, since texts may be sorted by their length.
    """

    label: str
    total: int
    unit: str
    done: int = 0
    quiet: bool = False
    tokens_ahead: int = 0

    def __post_init__(self) -> None:
        self.before, self.tokens, self.bar = self.done, 0, sys.stderr.isatty()
        self.every = _SECONDS_PER_LINE / 10 if self.bar else _SECONDS_PER_LINE
        self.started = self.printed = self.told = time.monotonic()

    def __enter__(self) -> Self:
        if not self.quiet:
            self._tell("")
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
        """Count finished work, and print a line if it is time for one; `note`, for instance a loss, ends the line."""
        self.done += count
        self.tokens += tokens
        if self.quiet:
            return
        now = time.monotonic()
        if now - self.printed >= self.every:
            self._print(note)
        if now - self.told >= SECONDS_PER_CALL:
            self._tell(note)

    def _tell(self, note: str) -> None:
        self.told = time.monotonic()
        for watch in watchers:
            watch(self, note)

    def pace(self) -> tuple[float, float, float | None]:
        """Return seconds so far, units per second, and seconds left."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        rate = (self.done - self.before) / seconds
        if self.tokens_ahead and self.tokens:
            left: float | None = (self.tokens_ahead - self.tokens) * seconds / self.tokens
        elif self.total and rate > 0:
            left = (self.total - self.done) / rate
        else:
            left = None
        return seconds, rate, left

    def _print(self, note: str = "", end: bool = False) -> None:
        self.printed = time.monotonic()
        seconds, rate, left = self.pace()
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
