"""Progress of long work: a bar on a terminal, a line every so often in a log."""

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from tandem import progress_file


def duration(seconds: float) -> str:
    """`47 s`, `3 min 20 s`, `1 h 56 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def say(line: str) -> None:
    """One line on standard error, flushed, so that a log shows it at once."""
    with suppress(BrokenPipeError):  # that nobody reads it any more ends no work
        print(line, file=sys.stderr, flush=True)


class Progress:
    """Counts work and reports rate and time left.

    Example: `with Progress("encode de-3f2a", total=37_000, unit="passages") as progress: progress.add(64, tokens=4096)`

    Args:
        label: what is being done, with the stage's key.
        total: amount of work; 0 if unknown.
        unit: what is counted, plural.
        every: seconds between lines in a log (a bar moves ten times as often).
        done: work already finished by an earlier process; it counts towards the total, not towards the rate.
        quiet: say nothing: another process that does the same work speaks.
    """

    def __init__(
        self, label: str, total: int, unit: str, every: float = 10.0, done: int = 0, quiet: bool = False
    ) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = self.before = done
        self.tokens, self.quiet = 0, quiet
        self.bar = sys.stderr.isatty()
        self.every = every / 10 if self.bar else every
        self.started = self.told = self.filed = time.monotonic()

    def __enter__(self) -> Self:
        if not self.quiet:
            self._file("")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None and not self.quiet:
            self._tell(end=True)

    def add(self, count: int, tokens: int = 0, note: str = "") -> None:
        """Count finished work; reports if the time for a line has come. `note` joins the line (a loss, say)."""
        self.done += count
        self.tokens += tokens
        if self.quiet:
            return
        now = time.monotonic()
        if now - self.told >= self.every:
            self._tell(note)
        if now - self.filed >= progress_file.EVERY:
            self._file(note)

    def _file(self, note: str) -> None:
        """Tell those who look from outside (`tandem top`)."""
        self.filed = time.monotonic()
        rate = (self.done - self.before) / max(self.filed - self.started, 1e-9)
        left = (self.total - self.done) / rate if self.total and rate > 0 else None
        told = {"label": self.label, "done": self.done, "total": self.total, "unit": self.unit, "note": note}
        progress_file.write({**told, "rate": round(rate, 3), "left": None if left is None else round(left)})

    def _tell(self, note: str = "", end: bool = False) -> None:
        self.told = time.monotonic()
        seconds = max(self.told - self.started, 1e-9)
        rate = (self.done - self.before) / seconds
        of = f"/{self.total:,}" if self.total else ""
        parts = [self.label, f"{self.done:,}{of} {self.unit}", *([note] if note else []), f"{rate:,.1f} {self.unit}/s"]
        if self.tokens:
            parts.append(f"{self.tokens / seconds:,.0f} tok/s")
        if end:
            parts.append(f"took {duration(seconds)}")
        elif self.total and rate > 0:
            parts.append(f"{duration((self.total - self.done) / rate)} left")
        line = " · ".join(parts)
        if self.bar:
            filled = int(20 * self.done / self.total) if self.total else 0
            print(f"\r\x1b[K[{'█' * filled:<20}] {line}", end="\n" if end else "", file=sys.stderr, flush=True)
        else:
            say(line)
