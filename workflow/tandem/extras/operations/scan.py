"""Find artifacts, pair stores and leftovers below a folder by their names; tens of thousands in seconds."""

import glob
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from tandem.cluster.progress import FILE as PROGRESS
from tandem.errors import UserError
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST, Artifact, Manifest, open_artifact

RESULTS = Path("results")
KEY = re.compile(r"[A-Za-z0-9_.+@-]+-[0-9a-f]{10}")  # as the Snakefile constrains it
PAIRS = "pairs"  # beside the kinds of a dataset: stores of a cross-encoder's scores
ORDER = "order"  # the same: the order of a dataset's ids
STORE = "store.json"
DELETED = ".deleted-"  # prefix of a folder whose deletion was interrupted
DEPTH = 4  # folders between a bundle's and an artifact's
FOLDERS = {*KINDS, PAIRS, ORDER}
ALIVE = 120.0  # seconds: a job that has written its progress since is running


def find(word: str) -> Artifact:
    """The artifact at a folder, or with that key below results/; its files are not read.

    Raises:
        UserError: there is none, or several datasets have one of that key.
    """
    folder = Path(word)
    if (folder / MANIFEST).is_file() or folder.name == MANIFEST:
        return open_artifact(folder, verify=False)
    manifests = RESULTS.glob(f"*/*/{glob.escape(folder.name)}/{MANIFEST}") if folder.name else ()
    folders = sorted(path.parent for path in manifests)
    if not folders:
        raise UserError(f"{word}: no finished artifact; give a folder with a {MANIFEST}, or a key below {RESULTS}/")
    if len(folders) > 1:
        raise UserError(f"{word}: stands for {', '.join(map(str, folders))}; give one of these folders")
    return open_artifact(folders[0], verify=False)


def artifact_folders(root: Path) -> Iterator[Path]:
    """Folders of artifacts and of pair stores below a folder, or that folder itself; sorted, links not followed.

    Raises:
        UserError: no such folder.
    """
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; give results/ or a folder below it")
    at = root.absolute()
    if KEY.fullmatch(at.name) and at.parent.name in FOLDERS:
        yield root
        return
    yield from _below(root, DEPTH)


def _below(folder: Path, depth: int) -> Iterator[Path]:
    keyed = folder.absolute().name in FOLDERS
    for path in _folders(folder):
        if keyed and KEY.fullmatch(path.name):
            yield path
        elif not keyed and depth > 1 and not path.name.startswith("."):
            yield from _below(path, depth - 1)


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, PermissionError):
        return []


def leftovers(root: Path) -> list[Path]:
    """Folders that an interrupted `gc` has renamed and not yet removed."""
    paths = [path for depth in ("*/*", "*/*/*") for path in root.glob(f"{depth}/{DELETED}*")]
    return sorted(path for path in paths if path.is_dir() and not path.is_symlink())


def kind_of(folder: Path) -> str:
    """The kind that a folder's place says."""
    return folder.absolute().parent.name


def read_manifest(folder: Path) -> Manifest | None:
    """An artifact's manifest; None where there is none or it is damaged."""
    try:
        return Manifest.model_validate(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError):
        return None


def is_running(folder: Path) -> bool:
    """Whether a job, or a shard of it, has written its progress a moment ago."""
    files = [folder / PROGRESS, *folder.glob(f"shards/*.{PROGRESS}")]
    return any(path.is_file() and time.time() - path.stat().st_mtime < ALIVE for path in files)


def bytes_of(paths: Iterable[Path]) -> int:
    """Total length of files; a link counts as itself, a file that is gone as nothing."""
    total = 0
    for path in paths:
        with suppress(FileNotFoundError):
            total += path.lstat().st_size
    return total


def first_names(names: list[str], count: int = 3) -> str:
    """The first names, and how many more."""
    more = f" and {len(names) - count:,} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more
