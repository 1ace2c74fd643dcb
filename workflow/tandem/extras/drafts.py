"""Drafts of the files and folders that a command writes; those of a killed process are removed by the next command."""

import fcntl
import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tandem.store.files import partial_path, replacing


@contextmanager
def draft_file(path: Path) -> Iterator[Path]:
    """Yield a file to write into, which gets its name once whole; drafts of killed processes are removed first."""
    remove_abandoned(path)
    with replacing(path) as draft:
        draft.touch()
        with hold(draft):
            yield draft


def remove_abandoned(path: Path) -> None:
    """Remove the drafts of a path whose processes were killed; a draft that may be another machine's stays."""
    beginning = partial_path(path).name.rpartition(".")[0]
    for draft in path.parent.glob(f"{glob.escape(beginning)}.*"):
        process = draft.name.rpartition(".")[2]
        is_left = process.isdecimal() and not Path("/proc", process).exists()
        if is_left and not draft.is_symlink():
            with suppress(OSError), hold(draft) as is_held:
                if is_held:
                    shutil.rmtree(draft) if draft.is_dir() else draft.unlink()


@contextmanager
def hold(path: Path) -> Iterator[bool]:
    """Hold the lock of a file or folder, which a process loses as it ends, and yield whether it is held.

    It is not held if another process has it, or if the file system has no such locks, as some shared ones do not.
    """
    opened = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = True
        except OSError:
            is_held = False
        yield is_held
    finally:
        os.close(opened)
