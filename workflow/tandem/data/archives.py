"""Files out of a zip or tar archive (plain, gzip, bzip2, xz): only the requested ones, nothing outside their folder."""

import fcntl
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from tandem.cluster.progress import say
from tandem.errors import UserError

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
    """The error of an archive that could not be read to its end."""
    if isinstance(error, OSError) and error.errno is not None:
        return UserError(f"{archive}: cannot be unpacked ({error.strerror}); mend that and try again")
    why = str(error) or type(error).__name__
    return UserError(f"{archive}: is no whole zip or tar archive ({why}); delete it and try again")


def _copy(archive: Path, entry: Entry, target: Path) -> None:
    """Write an entry's bytes to a file."""
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


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file: one process at a time, the others wait."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "wb")  # noqa: SIM115 (closed below, and a failure has a message of its own)
    except OSError as error:
        raise UserError(f"{path.parent}: cannot be written ({error.strerror}); make it writable") from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
