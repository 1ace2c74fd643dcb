"""Artifacts, pair stores and leftovers below a folder, found by their names; tens of thousands in seconds."""

import glob
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tandem.artifact import is_manifest
from tandem.errors import UserError
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST, Artifact, open_artifact

RESULTS = Path("results")
KEY = re.compile(r"[A-Za-z0-9_.+@-]+-[0-9a-f]{10}")  # as the Snakefile constrains it
PAIRS = "pairs"  # beside the kinds of a dataset: stores of a cross-encoder's scores
ORDER = "order"  # the same: the order of a dataset's ids
STORE = "store.json"
DELETED = ".deleted-"  # what begins so was to be deleted when its process ended
DEPTH = 4  # folders between a bundle's and an artifact's
FOLDERS = {*KINDS, PAIRS, ORDER}


def find(word: str) -> Artifact:
    """The artifact at a folder, or with that key below results/; its files are not read.

    Raises:
        UserError: there is none, or several datasets have one of that key.
    """
    folder = Path(word)
    if (folder / MANIFEST).is_file() or folder.name == MANIFEST:
        return open_artifact(folder, verify=False)
    named = RESULTS.glob(f"*/*/{glob.escape(folder.name)}/{MANIFEST}") if folder.name else ()
    found = sorted(path.parent for path in named)
    if not found:
        raise UserError(f"{word}: no finished artifact; give a folder with a {MANIFEST}, or a key below {RESULTS}/")
    if len(found) > 1:
        raise UserError(f"{word}: stands for {', '.join(map(str, found))}; give one of these folders")
    return open_artifact(found[0], verify=False)


def places(root: Path) -> Iterator[Path]:
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
    """`places` of a folder that is none itself."""
    keyed = folder.absolute().name in FOLDERS
    for path in _folders(folder):
        if keyed and KEY.fullmatch(path.name):
            yield path
        elif not keyed and depth > 1 and not path.name.startswith("."):
            yield from _below(path, depth - 1)


def leftovers(root: Path) -> list[Path]:
    """What an interrupted `gc` has renamed and not yet removed."""
    found = [path for depth in ("*/*", "*/*/*") for path in root.glob(f"{depth}/{DELETED}*")]
    return sorted(path for path in found if path.is_dir() and not path.is_symlink())


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder; one that vanishes meanwhile has none."""
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, PermissionError):
        return []


def kind_of(folder: Path) -> str:
    """The kind that a folder's place says."""
    return folder.absolute().parent.name


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What an artifact's manifest says; None where there is none or it is damaged."""
    try:
        told = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    whole = is_manifest(told) and {"key", "version", "params"} <= told.keys()
    return told if whole and told.get("inputs", {}).keys() <= told.get("upstream", {}).keys() else None


def files_in(folder: Path) -> Iterator[Path]:
    """Every file below a folder, links included as what they are."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, PermissionError):
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from files_in(Path(entry.path))
        else:
            yield Path(entry.path)


def bytes_of(paths: Iterable[Path]) -> int:
    """Bytes of files, as the disk counts their lengths; a link counts as itself, a file that is gone nothing."""
    total = 0
    for path in paths:
        try:
            total += path.lstat().st_size
        except FileNotFoundError:
            continue
    return total
