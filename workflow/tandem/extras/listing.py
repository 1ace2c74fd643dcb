"""The files that a user names as data, by which formats are recognised."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain, islice
from pathlib import Path
from typing import Self

from tandem.data.dataset_files import drop_leftovers, is_archive, open_folder
from tandem.data.reading import PACKED_ENDS, PACKING_ERRORS, open_bytes, strip_packing
from tandem.errors import UserError

_DEEPEST_FOLDERS = 3  # folders of a listing below the one that is named
_MOST_FILES = 10_000  # files that are looked at
_HEAD_BYTES = 1 << 16  # bytes of a file's beginning


@dataclass(frozen=True)
class FolderListing:
    """Files below a folder: their paths relative to it, without the suffix of their packing.

    Attributes:
        place: the value of a dataset's `path`: the folder, or the archive that has been unpacked there.
    """

    folder: Path
    names: tuple[str, ...]
    place: Path

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Self:
        """Return the files of one folder or archive, or the named files, without what editors and systems leave.

        Raises:
            UserError: nothing is there, or several folders are named.
        """
        for path in paths:
            if not path.exists():
                raise UserError(f"--data {path}: no such file or folder")
            if path.is_dir() and len(paths) > 1:
                raise UserError(
                    f"--data {path}: a folder beside other data; one folder, or only files, are allowed"
                )
        place = folder = paths[0]
        files = list(paths)
        if len(paths) == 1 and is_archive(place):
            folder = open_folder(place)
        if folder.is_dir():
            # `*`, `*/*`, … instead of `**`: the files of upper folders come first.
            found = chain.from_iterable(
                folder.glob("*/" * depth + "*") for depth in range(_DEEPEST_FOLDERS)
            )
            files = drop_leftovers(islice(filter(Path.is_file, found), _MOST_FILES))
        else:
            if any(path.is_absolute() for path in files):
                files = [path.absolute() for path in files]
            place = folder = Path(os.path.commonpath([path.parent for path in files]))
        names = (strip_packing(path.relative_to(folder).as_posix()) for path in files)
        return cls(folder, tuple(sorted(set(names))), place)

    def matching(self, *patterns: str) -> list[str]:
        """Return the names that fit a pattern; `*` does not cross `/`."""
        names = []
        for name in self.names:
            depth = name.count("/")
            if any(
                depth == pattern.count("/") and fnmatchcase(name, pattern) for pattern in patterns
            ):
                names.append(name)
        return names

    def path(self, name: str) -> Path:
        """Return the file of a name, packed or not."""
        paths = (self.folder / f"{name}{end}" for end in ("", *PACKED_ENDS))
        return next((path for path in paths if path.is_file()), self.folder / name)

    def head(self, name: str) -> bytes:
        """Return the beginning of a file, unpacked; empty where it cannot be read."""
        try:
            with open_bytes(self.path(name)) as file:
                return file.read(_HEAD_BYTES)
        except (*PACKING_ERRORS, UserError):
            return b""
