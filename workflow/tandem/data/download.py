"""Downloads: a file is under its final name only when it is complete and checked."""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from tandem.cluster.progress import say
from tandem.data.mirrors import VARIABLE, Mirrors, alternatives, local
from tandem.data.part import part_of
from tandem.data.transfer import TransferError, transfer
from tandem.errors import UserError
from tandem.store.environment import redacted


@dataclass(frozen=True)
class Expected:
    """What is known of a file before it is here; None where nothing is."""

    size: int | None = None
    sha256: str | None = None
    md5: str | None = None

    def fault(self, path: Path) -> str | None:
        """What a file's size or checksum is instead of what it should be; None if it fits."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"has {size:,} bytes, expected {self.size:,}"
        for name, wanted in (("sha256", self.sha256), ("md5", self.md5)):
            if wanted is not None:
                with open(path, "rb") as file:
                    found = hashlib.file_digest(file, name).hexdigest()
                if found != wanted:
                    return f"has {name} {found}, expected {wanted}"
        return None

    @property
    def has_checksum(self) -> bool:
        """Whether the content is known."""
        return self.sha256 is not None or self.md5 is not None


def readable(size: int) -> str:
    """A number of bytes as a person reads it: `512 B`, `1.2 MB`, `21.8 GB` (powers of 1,000)."""
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.95 or unit == "TB":
            break
        value /= 1000
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def fetch(url: str, target: Path, expected: Expected, mirrors: Mirrors = (), pause: float = 1.0) -> Path:
    """Fetch a file from its mirrors or its URL, resuming what an earlier process began.

    Several processes may fetch the same file: one does, the others wait for it.

    Args:
        url: http, https or file.
        target: the final path; `<target>.part` is beside it until the file is complete. What is there is whole.
        expected: size and checksum; a download that differs is removed.
        mirrors: asked first, in order.
        pause: seconds before the second try of a URL.
    Returns:
        `target`, or the file itself that a `file://` URL names: it is used where it is.
    Raises:
        UserError: no URL gives the file, or it cannot be written.
    """
    failures = []
    for at in alternatives(url, mirrors):
        try:
            path = local(at)
            return _there(path, expected) if path else _fetched(at, target, expected, pause)
        except TransferError as error:
            failures.append(f"{at} {error}" if at != url else str(error))
        except OSError as error:
            where = f"{target}: cannot be written ({error.strerror or error})"
            raise UserError(f"{where}; set {VARIABLE} to a folder of yours with enough space") from None
    told = f"{redacted(url)}: cannot be fetched: {redacted('; '.join(failures))}"
    raise UserError(f"{told}. Name another place in execution.mirrors, or put the file at {target}")


def _there(path: Path, expected: Expected) -> Path:
    """A local file that stands in for a URL."""
    fault = expected.fault(path) if path.is_file() else "is no file"
    if fault:
        raise TransferError(fault)
    return path


def _fetched(url: str, target: Path, expected: Expected, pause: float) -> Path:
    """`fetch` of one URL over HTTP."""
    label = f"download {target.name}"
    with part_of(target) as part:
        if part is None:
            return target
        began = part.size
        _require_space(target, expected, began)
        for again in (False, True):
            transfer(url, part, label, expected.has_checksum, pause)
            fault = expected.fault(part.path)
            if fault is None:
                part.finish(target)
                return target
            if again or not began:
                break
            say(f"{label} · what was resumed {fault}: from the start")
            part.restart()
        part.remove()
        raise TransferError(str(fault))


def _require_space(target: Path, expected: Expected, began: int) -> None:
    """Refuse a download that the disk cannot hold, as far as its size is known."""
    needed, free = (expected.size or 0) - began, shutil.disk_usage(target.parent).free
    if needed > free:
        told = f"{target.parent}: {readable(free)} are free, {target.name} needs {readable(needed)}"
        raise UserError(f"{told}; set {VARIABLE} to a folder with enough space")
