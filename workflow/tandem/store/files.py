"""Write files under temporary names and replace them at once, lock them, and compute checksums.

A file that is being written is `.<name>.<process>` next to its final place, so that nobody reads an incomplete one.
"""

import csv
import errno
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tandem.errors import UserError

EDGE = 1 << 16  # bytes at each end of a file that a fingerprint reads
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# total of a folder's smallest files that are read whole: judgements may be corrected in the middle of a file
BYTES_READ_WHOLE = 1 << 26


def partial_path(path: Path) -> Path:
    """Return the name of a file or folder while this process writes it: `.<name>.<process>`, in the same folder."""
    return path.with_name(f".{path.name.lstrip('.')}.{os.getpid()}")


def is_partial(name: str) -> bool:
    """Return whether a name was made by `partial_path`: `.stage.json.4711`."""
    return name.startswith(".") and name.rpartition(".")[2].isdecimal()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file or folder under a temporary name; on success it replaces `path`, else it is removed."""
    partial = partial_path(path)
    if partial.is_dir():  # of a process that was killed and had the same number, as in containers
        shutil.rmtree(partial)
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        # an error of `write` that finds no room names no file
        if error.errno in _NO_ROOM and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file so that readers see either its old or its new content; parent folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, open(partial, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON with a final newline, by `write_text`."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def csv_text(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a header and rows as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return file.getvalue()


def link(path: Path, to: Path) -> None:
    """Give a file a second name, or a copy where the file system has no hard links."""
    try:
        os.link(path, to)
    except OSError:
        shutil.copyfile(path, to)


def try_lock(path: Path) -> FileLock | None:
    """Lock a file for this process, until it is released or the process ends; None if another process holds it."""
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return lock


def is_locked(path: Path) -> bool:
    """Return whether a process holds a lock file; False if it may not be opened for writing."""
    try:
        lock = try_lock(path)
    except OSError:
        return False
    if lock is None:
        return True
    lock.release()
    return False


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file: one process at a time holds it, the others wait."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        lock.acquire()
    except OSError as error:
        raise UserError(
            f"{path.parent}: cannot be written ({error.strerror}); make it writable"
        ) from None
    try:
        yield
    finally:
        lock.release()


def sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes in hex digits; the file is read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_once(path: Path) -> str:
    """Return `sha256` of a file, computed once a process as long as its size and time of change stay."""
    status = path.stat()
    return _sha256_of(path, status.st_size, status.st_mtime_ns)


@cache
def _sha256_of(path: Path, size: int, changed: int) -> str:
    return sha256(path)


def fingerprint(path: Path, files: Iterable[Path] | None = None) -> str:
    """Return 10 hex digits over names and contents of a file, or of a folder's `files` (None: all).

    The smallest files, 64 MiB together, count whole; others, such as a corpus, by size, first and last 64 KiB.
    """
    if path.is_file():
        files = [path]
    elif files is None:
        files = path.rglob("*")
    sizes = {found: found.stat().st_size for found in sorted(files) if found.is_file()}

    whole: set[Path] = set()
    total = 0
    for smallest in sorted(sizes, key=sizes.__getitem__):
        total += sizes[smallest]
        if total <= BYTES_READ_WHOLE:
            whole.add(smallest)

    digest = hashlib.sha256()
    for file_path, size in sizes.items():
        digest.update(
            f"{os.path.relpath(file_path, path) if path.is_dir() else ''}:{size}\n".encode()
        )
        with open(file_path, "rb") as file:
            digest.update(file.read(EDGE))
            file.seek(max(0, size - EDGE))
            digest.update(file.read())
        if file_path in whole and size > 2 * EDGE:
            digest.update(sha256_once(file_path).encode())
    return digest.hexdigest()[:10]


def files_in(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder, sorted; links count as files, and a folder that vanishes counts as empty."""
    try:
        with os.scandir(folder) as entries:
            sorted_entries = sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, PermissionError):
        return
    for entry in sorted_entries:
        if entry.is_dir(follow_symlinks=False):
            yield from files_in(Path(entry.path))
        else:
            yield Path(entry.path)
