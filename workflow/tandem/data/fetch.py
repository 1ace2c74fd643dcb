"""Fetching a file from its mirrors or its URL, and files out of a zip or tar archive (plain, gzip, bzip2, xz).

A file gets its final name only when it is complete and checked. Downloads are stored as `<host>/<path>` in the folder
`TANDEM_DATA` (by default `~/.cache/tandem`), so that a folder filled on one machine serves another without network.
Of an archive only the requested members are unpacked, and nothing outside their folder.
"""

import hashlib
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from tandem.cluster.progress import say
from tandem.config.execution import Mirror
from tandem.data.transfer import TransferError, open_part, transfer
from tandem.errors import UserError
from tandem.store.environment import redacted
from tandem.store.files import locked

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


# What reading a broken archive raises; RuntimeError is zipfile's for one with a password or an unknown compression.
BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, RuntimeError, OSError)


class Entry(NamedTuple):
    """An entry of an archive: a path, whether it is a plain file (no link, no device), and how to read it."""

    name: str
    is_file: bool
    open: Callable[[], IO[bytes] | None]


def is_below(name: str) -> bool:
    """Whether a relative path stays below its folder: no `..`, no empty part, no leading slash."""
    return bool(name) and not name.startswith("/") and not {"", ".", ".."} & set(name.removesuffix("/").split("/"))


def unpack(archive: Path, members: Collection[str], folder: Path) -> dict[str, Path]:
    """Unpack members of an archive in one pass, unless they are there from the same archive.

    Each gets its name only when it is whole, with the archive's modification time as the mark of its origin.

    Args:
        archive: the archive.
        members: paths inside it; the end of a file's path is enough where only that file ends so. A path with `/` at
            its end is a folder with all that is in it.
        folder: where they go.
    Returns:
        Member → path.
    Raises:
        UserError: a broken archive, a member it lacks, a path that leaves `folder`, or a link.
    """
    for member in members:
        if not is_below(member):
            raise UserError(f"member {member!r} of {archive}: a path inside the archive, without `..`, is needed")
    mark, paths = archive.stat().st_mtime_ns, {member: folder / member for member in members}
    with locked(folder / ".lock"):
        missing = [name for name, path in paths.items() if not (path.exists() and path.stat().st_mtime_ns == mark)]
        if missing:
            say(f"unpack {archive.name} · {', '.join(missing)}")
            _unpack(archive, missing, folder, mark)
    return paths


def _unpack(archive: Path, members: list[str], folder: Path, mark: int) -> None:
    """`unpack` of missing members, into a folder that nobody else writes."""
    temporary = folder / ".partial"
    shutil.rmtree(temporary, ignore_errors=True)
    names: dict[str, list[str]] = {member: [] for member in members}
    try:
        for entry in entries(archive):
            name = entry.name.removeprefix("./")
            matching = [m for m in members if (name.startswith(m) if m.endswith("/") else f"/{name}".endswith(f"/{m}"))]
            if matching and not (entry.is_file and is_below(name)):
                raise UserError(f"{archive}: {entry.name} is a link or leaves its folder; only plain files are taken")
            if matching:
                _copy(archive, entry, temporary / name)
            for member in matching:
                names[member].append(name)
        for member, matches in names.items():
            _move(archive, member, matches, temporary, folder / member, mark)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def entries(archive: Path) -> Iterator[Entry]:
    """The files of an archive, in its order; an entry must be read before the next one is requested."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                for info in packed.infolist():
                    if not info.is_dir():
                        is_link = stat.S_ISLNK(info.external_attr >> 16)
                        yield Entry(info.filename, not is_link, partial(packed.open, info))
        else:
            with tarfile.open(archive, "r|*") as tape:
                for part in tape:
                    if not part.isdir():
                        yield Entry(part.name, part.isfile(), partial(tape.extractfile, part))
    except BROKEN as error:
        raise _broken(archive, error) from None


def _broken(archive: Path, error: Exception) -> UserError:
    if isinstance(error, OSError) and error.errno is not None:
        return UserError(f"{archive}: cannot be unpacked ({error.strerror}); mend that and try again")
    why = str(error) or type(error).__name__
    return UserError(f"{archive}: is no whole zip or tar archive ({why}); delete it and try again")


def _copy(archive: Path, entry: Entry, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as out:
        try:
            source = entry.open()
            if source is not None:
                with source:
                    shutil.copyfileobj(source, out, 1 << 20)
        except BROKEN as error:
            raise _broken(archive, error) from None


def _move(archive: Path, member: str, names: list[str], temporary: Path, path: Path, mark: int) -> None:
    """Give the unpacked file or folder of a member its final name."""
    if not names:
        raise UserError(f"{archive}: holds no {member}; look what it is called there, or put the file in place by hand")
    exact = member.endswith("/") or member in names
    if not exact and len(names) > 1:
        raise UserError(f"{archive}: several files end in {member}: {', '.join(names[:5])}; name one with its path")
    source = temporary / (member if exact else names[0])
    if not source.exists():
        raise UserError(f"{archive}: {member} is named twice among the files that are taken from it; name it once")
    path.parent.mkdir(parents=True, exist_ok=True)
    os.utime(source, ns=(mark, mark))
    if path.is_dir():
        shutil.rmtree(path)
    os.replace(source, path)
