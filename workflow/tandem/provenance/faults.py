"""What may be wrong with an artifact: names of faults, and those that show without reading its files."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.artifact import MANIFEST, content
from tandem.plan.graph import digest
from tandem.progress_file import FILE as PROGRESS
from tandem.provenance.found import files_in, kind_of, read_manifest
from tandem.redacted import HIDDEN
from tandem.stages import KINDS
from tandem.verified import RECORD

# Beside an artifact's files, and no part of it: logs, and what a job that is killed leaves to go on from.
BESIDE = (MANIFEST, "log.txt", RECORD, PROGRESS, ".snakemake_timestamp")
WORK = ("checkpoints", "state", "shards", "work")
DRAFTS = (".partial", ".scratch")
ALIVE = 120.0  # seconds: a job that has written its progress since is running


@dataclass(frozen=True)
class Fault:
    """Something that does not fit.

    Attributes:
        folder: the artifact's.
        what: `missing`, `truncated`, `changed`, `unknown`, `input`, `draft`, `unfinished`, `damaged` or `name`.
        path: the file or folder it is about.
        why: in words.
    """

    folder: Path
    what: str
    path: Path
    why: str


def is_running(folder: Path) -> bool:
    """Whether a job, or a shard of it, has told its progress a moment ago."""
    told = [folder / PROGRESS, *folder.glob(f"shards/*.{PROGRESS}")]
    return any(path.is_file() and time.time() - path.stat().st_mtime < ALIVE for path in told)


def of_folder(folder: Path) -> Iterator[Fault]:
    """Faults of a folder that has no manifest, or a damaged one."""
    manifest = folder / MANIFEST
    if manifest.exists():
        yield Fault(folder, "damaged", manifest, "is not a manifest; delete it and run its stage again")
    elif not is_running(folder):
        inside = [path for path in files_in(folder) if path.name not in BESIDE and not _is_lock(path.name)]
        if inside:
            told = f"{len(inside):,} files and no {MANIFEST}: its job was ended, or files were purged"
            yield Fault(folder, "unfinished", folder, f"holds {told}; run its stage again")
    yield from drafts(folder, list(files_in(folder)))


def drafts(folder: Path, files: Iterable[Path]) -> list[Fault]:
    """What killed jobs left half-written; nothing while a job is running there.

    Args:
        folder: the artifact's.
        files: all that lie below it.
    """
    left = [folder / name for name in DRAFTS if (folder / name).exists()]
    left += [path for path in files if _is_partial(path.name) and _first(folder, path) not in (*DRAFTS, *WORK)]
    if not left or is_running(folder):
        return []
    return [Fault(folder, "draft", path, "was left half-written by a job that was ended") for path in left]


def _first(folder: Path, path: Path) -> str:
    """The first part of a file's place below a folder."""
    return path.relative_to(folder).parts[0]


def _is_lock(name: str) -> bool:
    """`.stage.json.lock`: held by a process that makes the artifact; one that is killed leaves it, free."""
    return name.startswith(".") and name.endswith(".lock")


def _is_partial(name: str) -> bool:
    """`.stage.json.4711`, `.verified.json.4711`: a name that a file has while it is written, with a process id."""
    return name.startswith(".") and name.rpartition(".")[2].isdecimal()


def of_manifest(folder: Path, manifest: dict[str, Any]) -> Iterator[Fault]:
    """Faults of a manifest itself: another key, kind or parameters than its folder's name says."""
    path, key, kind = folder / MANIFEST, folder.absolute().name, kind_of(folder)
    if (manifest["key"], manifest["kind"]) != (key, kind):
        told = f"is of {manifest['kind']} {manifest['key']}, its folder of {kind} {key}"
        yield Fault(folder, "name", path, f"{told}; the folder was renamed or copied over")
        return
    if HIDDEN in str(manifest["params"]) or kind not in KINDS:
        return
    above = {role: Path(at).name.rpartition("-")[2] for role, at in manifest.get("upstream", {}).items()}
    made = digest(kind, manifest["version"], manifest["params"], above)
    if made != key.rpartition("-")[2]:
        yield Fault(folder, "name", path, f"its parameters and inputs give {made}, not the digest of its name")


class Inputs:
    """Contents of the artifacts that others were made from, each manifest read once: thousands share a dataset."""

    def __init__(self) -> None:
        self._contents: dict[Path, tuple[str, ...]] = {}

    def faults(self, folder: Path, manifest: dict[str, Any]) -> Iterator[Fault]:
        """Inputs that are there with other bytes than the artifact was made from; a deleted input is no fault."""
        for role, told in manifest.get("inputs", {}).items():
            above = resolve(folder, manifest["upstream"][role])
            found = self._content(above)
            if found and told not in found:
                why = f"was made from {above.name} (as {role}) with content {told}; it has {found[0]} now"
                yield Fault(folder, "input", above / MANIFEST, f"{why}: it was made again with other bytes")

    def _content(self, folder: Path) -> tuple[str, ...]:
        """An artifact's content, as it is counted and as it was by earlier versions; empty where it is not there."""
        if folder not in self._contents:
            self._contents[folder] = contents(read_manifest(folder))
        return self._contents[folder]


def contents(manifest: dict[str, Any] | None) -> tuple[str, ...]:
    """What an artifact's content may have been told as; nothing of one that is not there."""
    return () if manifest is None else (content(manifest), content(manifest, notes=True))


def resolve(folder: Path, told: str) -> Path:
    """An input's folder: as the manifest says, or the same dataset, kind and key beside the artifact."""
    path = Path(told)
    beside = folder.absolute().parents[2].joinpath(*path.parts[-3:])
    return beside if (beside / MANIFEST).is_file() else path


def unknown(folder: Path, manifest: dict[str, Any], files: Iterable[Path]) -> Iterator[Fault]:
    """Files below an artifact that neither its manifest lists nor a stage leaves there."""
    for path in files:
        name = path.relative_to(folder).as_posix()
        first = name.split("/")[0]
        block = first == "blocks" and name.removesuffix(".json") + ".npy" in manifest["files"]
        if name in manifest["files"] or name in BESIDE or first in (*WORK, *DRAFTS) or block or _is_lock(path.name):
            continue
        if not _is_partial(path.name):
            yield Fault(folder, "unknown", path, "is not in the manifest; no stage reads it")
