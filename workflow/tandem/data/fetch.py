"""Fetching a file from its mirrors or its URL: it gets its final name only when it is complete and checked.

Downloads are stored as `<host>/<path>` in the folder `TANDEM_DATA` (by default `~/.cache/tandem`), so that a folder
filled on one machine serves another without network.
"""

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from tandem.cluster.progress import say
from tandem.config.execution import Mirror
from tandem.data.transfer import TransferError, open_part, transfer
from tandem.errors import UserError
from tandem.store.environment import redacted

VARIABLE = "TANDEM_DATA"


@dataclass(frozen=True)
class Expected:
    """Known properties of a file before it is downloaded; None where unknown."""

    size: int | None = None
    sha256: str | None = None
    md5: str | None = None

    def mismatch(self, path: Path) -> str | None:
        """How a file's size or checksum differs; None if it fits."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"has {size:,} bytes, expected {self.size:,}"
        for name, digest in (("sha256", self.sha256), ("md5", self.md5)):
            if digest is not None:
                with open(path, "rb") as file:
                    actual = hashlib.file_digest(file, name).hexdigest()
                if actual != digest:
                    return f"has {name} {actual}, expected {digest}"
        return None


def readable(size: int) -> str:
    """A number of bytes as a person reads it: `512 B`, `1.2 MB`, `21.8 GB` (powers of 1,000)."""
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.95 or unit == "TB":
            break
        value /= 1000
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def data_folder() -> Path:
    """The folder of `TANDEM_DATA`, absolute; it need not exist yet."""
    return Path(os.environ.get(VARIABLE) or "~/.cache/tandem").expanduser().absolute()


def alternatives(url: str, mirrors: Sequence[Mirror]) -> list[str]:
    """URLs to try in order: each mirror whose `from` the URL begins with, then the URL itself."""
    mirrored = [mirror.to + url.removeprefix(mirror.from_) for mirror in mirrors if url.startswith(mirror.from_)]
    return list(dict.fromkeys([*mirrored, url]))


def local_path(url: str) -> Path | None:
    """The path of a `file://` URL; None for any other."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def cache_path(url: str) -> Path:
    """Where a URL's bytes are stored: `<host>/<path>` in the data folder, a query behind `?`.

    Raises:
        UserError: a URL without a host or a file name, or with `..` in its path.
    """
    parts = urlsplit(url)
    path = unquote(parts.path).lstrip("/")
    if not parts.netloc or not path or path.endswith("/") or {"", ".", ".."} & set(path.split("/")):
        raise UserError(f"{url}: names no file; a URL is https://host/path/file")
    name = f"{path}?{quote(parts.query, safe='=&')}" if parts.query else path
    return data_folder() / quote(parts.netloc, safe=".-_") / name


def fetch(url: str, target: Path, expected: Expected, mirrors: Sequence[Mirror] = (), pause: float = 1.0) -> Path:
    """Fetch a file from its mirrors or its URL, resuming an earlier process' download.

    Of several processes that fetch the same file one does, and the others wait for it. A download that differs from
    what is expected is removed. `pause` are the seconds before the second try of a URL.

    Returns:
        `target`, or the file itself that a `file://` URL names: it is used where it is.
    Raises:
        UserError: no URL gives the file, or it cannot be written.
    """
    failures = []
    for alternative in alternatives(url, mirrors):
        try:
            path = local_path(alternative)
            if path is None:
                return _download(alternative, target, expected, pause)
            if error := expected.mismatch(path) if path.is_file() else "is no file":
                raise TransferError(error)
            return path
        except TransferError as fault:
            failures.append(f"{alternative} {fault}" if alternative != url else str(fault))
        except OSError as fault:
            where = f"{target}: cannot be written ({fault.strerror or fault})"
            raise UserError(f"{where}; set {VARIABLE} to a folder of yours with enough space") from None
    message = f"{redacted(url)}: cannot be fetched: {redacted('; '.join(failures))}"
    raise UserError(f"{message}. Name another place in execution.mirrors, or put the file at {target}")


def _download(url: str, target: Path, expected: Expected, pause: float) -> Path:
    """`fetch` of one URL over HTTP."""
    label = f"download {target.name}"
    with open_part(target) as part:
        if part is None:
            return target
        resumed = part.size
        needed, free = (expected.size or 0) - resumed, shutil.disk_usage(target.parent).free
        if needed > free:
            message = f"{target.parent}: {readable(free)} are free, {target.name} needs {readable(needed)}"
            raise UserError(f"{message}; set {VARIABLE} to a folder with enough space")
        for again in (False, True):
            transfer(url, part, label, bool(expected.sha256 or expected.md5), pause)
            error = expected.mismatch(part.path)
            if error is None:
                part.finish(target)
                return target
            if again or not resumed:
                break
            say(f"{label} · what was resumed {error}: from the start")
            part.restart()
        part.remove()
        raise TransferError(str(error))
