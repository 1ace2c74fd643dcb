"""A file that is being downloaded: its bytes in `<target>.part`, what they are a part of in `<target>.part.json`."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from tandem.cluster.progress import say
from tandem.store.files import write_json


@dataclass(frozen=True)
class Version:
    """What a part is a part of.

    Attributes:
        url: where it comes from.
        validator: ETag or Last-Modified (RFC 9110 §8.8); None if the server sends none.
        size: of the whole, in bytes; None if unknown.
    """

    url: str
    validator: str | None
    size: int | None


class Part:
    """A part file, open for appending and ours alone."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.file = path, file

    @property
    def size(self) -> int:
        """Bytes written so far."""
        self.file.flush()
        return os.fstat(self.file.fileno()).st_size

    @property
    def version(self) -> Version | None:
        """What it is a part of, None if that is not known."""
        try:
            return Version(**json.loads(_beside(self.path).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def restart(self, version: Version | None = None) -> None:
        """Empty it, for the beginning of a version."""
        self.file.truncate(0)
        _beside(self.path).unlink(missing_ok=True)
        if version:
            write_json(_beside(self.path), asdict(version))

    def finish(self, target: Path) -> None:
        """Give it its final name, once its bytes are on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        os.replace(self.path, target)
        _beside(self.path).unlink(missing_ok=True)

    def remove(self) -> None:
        """Leave nothing of it."""
        self.path.unlink()
        _beside(self.path).unlink(missing_ok=True)


@contextmanager
def part_of(target: Path) -> Iterator[Part | None]:
    """The part of a file, locked; None if the file is there, or another process finishes it meanwhile.

    The lock dies with its process. A lock on a part that was renamed or removed meanwhile is worth nothing, so it is
    taken again.
    """
    path = target.with_name(f"{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    while not target.is_file():
        with open(path, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"download {target.name} · another process is at it: waiting")
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _same(file, path):
                continue
            if target.is_file():
                path.unlink()
                break
            try:
                yield Part(path, file)
            finally:
                if _same(file, path) and not path.stat().st_size:
                    Part(path, file).remove()
            return
    yield None


def _same(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is still what its path names."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
