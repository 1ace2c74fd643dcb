"""Files out of a zip or tar archive (plain, gzip, bzip2, xz): only those asked for, nothing outside their folder."""

import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tandem.cluster.progress import say
from tandem.data.packed import BROKEN, Entry, broken, entries
from tandem.errors import UserError


def plain(name: str) -> bool:
    """Whether a relative path stays below its folder: no `..`, no empty part, no leading slash."""
    return bool(name) and not name.startswith("/") and not {"", ".", ".."} & set(name.removesuffix("/").split("/"))


def unpack(archive: Path, members: Collection[str], folder: Path) -> dict[str, Path]:
    """Unpack members of an archive in one pass, unless they are there from the same archive.

    Each appears under its name only when it is whole, with the archive's modification time as the mark of what it came
    from.

    Args:
        archive: the archive.
        members: paths inside it; the end of a file's path does where it is the only one that ends so. A path with `/`
            at its end is a folder with all that is in it.
        folder: what they are put into.
    Returns:
        Member → path.
    Raises:
        UserError: a broken archive, a member it lacks, a path that leaves `folder`, or a link.
    """
    for member in members:
        if not plain(member):
            raise UserError(f"member {member!r} of {archive}: a path inside the archive, without `..`, is needed")
    mark, paths = archive.stat().st_mtime_ns, {member: folder / member for member in members}
    with _alone(folder):
        missing = [member for member, path in paths.items() if not _has(path, mark)]
        if missing:
            say(f"unpack {archive.name} · {', '.join(missing)}")
            _unpack(archive, missing, folder, mark)
    return paths


def _unpack(archive: Path, members: list[str], folder: Path, mark: int) -> None:
    """`unpack` of members that are not there, into a folder that nobody else writes."""
    temporary = folder / ".partial"
    shutil.rmtree(temporary, ignore_errors=True)
    found: dict[str, list[str]] = {member: [] for member in members}
    try:
        for entry in entries(archive):
            name = entry.name.removeprefix("./")
            wanted = [member for member in members if _matches(name, member)]
            if wanted and not (entry.plain and plain(name)):
                raise UserError(f"{archive}: {entry.name} is a link or leaves its folder; only plain files are taken")
            if wanted:
                _copy(archive, entry, temporary / name)
            for member in wanted:
                found[member].append(name)
        for member, names in found.items():
            _move(archive, member, names, temporary, folder / member, mark)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _matches(name: str, member: str) -> bool:
    """Whether an archive's path is a member: the same path, one that ends so, or one below that folder."""
    return name.startswith(member) if member.endswith("/") else f"/{name}".endswith(f"/{member}")


def _move(archive: Path, member: str, names: list[str], temporary: Path, path: Path, mark: int) -> None:
    """Put what was found of a member under its final name."""
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


def _has(path: Path, mark: int) -> bool:
    """Whether a member was unpacked from an archive of this modification time."""
    return path.exists() and path.stat().st_mtime_ns == mark


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time unpacks into a folder; the others wait."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / ".lock", "wb")  # noqa: SIM115 (closed below, and a failure has a line of its own)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); make it writable") from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _copy(archive: Path, entry: Entry, to: Path) -> None:
    """Write an entry's bytes to a file."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with open(to, "wb") as out:
        try:
            source = entry.open()
            if source is not None:
                with source:
                    shutil.copyfileobj(source, out, 1 << 20)
        except BROKEN as error:
            raise broken(archive, error) from None
