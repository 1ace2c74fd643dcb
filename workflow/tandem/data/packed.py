"""What a zip or tar archive (plain, gzip, bzip2, xz) holds, read from its beginning to its end."""

import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from tandem.errors import UserError

# What reading a broken archive raises; RuntimeError is zipfile's for one with a password or an unknown compression.
BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, RuntimeError, OSError)


class Entry(NamedTuple):
    """What an archive holds: a path, whether it is a plain file (no link, no device), and how to read it."""

    name: str
    plain: bool
    open: Callable[[], IO[bytes] | None]


def entries(archive: Path) -> Iterator[Entry]:
    """What an archive holds, in its order, folders left out; an entry is read before the next is asked for."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                for info in packed.infolist():
                    if not info.is_dir():
                        yield Entry(
                            info.filename, not stat.S_ISLNK(info.external_attr >> 16), partial(packed.open, info)
                        )
        else:
            with tarfile.open(archive, "r|*") as tape:
                for part in tape:
                    if not part.isdir():
                        yield Entry(part.name, part.isfile(), partial(tape.extractfile, part))
    except BROKEN as error:
        raise broken(archive, error) from None


def broken(archive: Path, error: Exception) -> UserError:
    """The line about an archive that could not be read to its end."""
    if isinstance(error, OSError) and error.errno is not None:
        return UserError(f"{archive}: cannot be unpacked ({error.strerror}); mend that and try again")
    why = str(error) or type(error).__name__
    return UserError(f"{archive}: is no whole zip or tar archive ({why}); delete it and try again")
