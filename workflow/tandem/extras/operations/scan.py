"""Find artifacts, stores and leftovers below a folder, and their faults, as far as both show without reading files."""

import glob
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from tandem.cluster.progress import FILE as PROGRESS
from tandem.errors import UserError
from tandem.plan.graph import digest
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST, RECORD, Artifact, FileRecord, Manifest, open_artifact
from tandem.store.environment import HIDDEN
from tandem.store.files import files_in, is_partial
from tandem.store.lineage import resolve_input

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
    """The artifact at a folder or with a key below results/, its files unread; a `UserError` unless there is one."""
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
    """Folders of artifacts and of pair stores below a folder, or that folder itself; sorted, links not followed."""
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; give results/ or a folder below it")
    if KEY.fullmatch(root.absolute().name) and kind_of(root) in FOLDERS:
        yield root
    else:
        yield from _below(root, DEPTH)


def _below(folder: Path, depth: int) -> Iterator[Path]:
    keyed = folder.absolute().name in FOLDERS
    try:
        with os.scandir(folder) as entries:
            paths = sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, PermissionError):
        return
    for path in paths:
        if keyed and KEY.fullmatch(path.name):
            yield path
        elif not keyed and depth > 1 and not path.name.startswith("."):
            yield from _below(path, depth - 1)


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


# Beside an artifact's files, and no part of it: logs, and what a job that is killed leaves to go on from.
BESIDE = (MANIFEST, "log.txt", RECORD, PROGRESS, ".snakemake_timestamp")
WORK = ("checkpoints", "state", "shards", "work")
DRAFTS = (".partial", ".scratch")
SCORED_AGAIN = "delete it, its pairs will be scored again"


@dataclass(frozen=True)
class Fault:
    """A difference between results and their manifests."""

    folder: Path
    what: str  # `missing`, `truncated`, `changed`, `unknown`, `input`, `draft`, `unfinished`, `damaged` or `name`
    path: Path  # the file or folder in the artifact's `folder` that it is about
    why: str


class Examined(NamedTuple):
    """What shows of a folder without reading its files."""

    folder: Path
    stamp: int  # `stamp` of the folder before it was looked at
    faults: list[Fault]
    files: dict[str, FileRecord]  # what is to be read and compared

    @property
    def bytes(self) -> int:
        """Expected size of the files."""
        return sum(file.bytes for file in self.files.values())


def stamp(folder: Path) -> int:
    """When an artifact's manifest was written, in nanoseconds; 0 where there is none."""
    try:
        return (folder / MANIFEST).stat().st_mtime_ns
    except OSError:
        return 0


def examine(folder: Path, inputs: "Inputs", left_out: Collection[str] = ()) -> Examined:
    """Look at an artifact or a store; of the artifacts in `left_out` only the manifest is there."""
    written, kind = stamp(folder), kind_of(folder)
    if kind == PAIRS:
        return Examined(folder, written, list(_faults_of_store(folder)), _store_files(folder))
    if kind == ORDER:
        return Examined(folder, written, [], _order_files(folder))
    files, manifest = list(files_in(folder)), read_manifest(folder)
    if manifest is None:
        return Examined(folder, written, [*_faults_of_unfinished(folder, files), *_drafts(folder, files)], {})
    faults = [*_faults_of_manifest(folder, manifest), *inputs.faults(folder, manifest)]
    faults += [*_unknown_files(folder, manifest, files), *_drafts(folder, files)]
    return Examined(folder, written, faults, {} if folder.name in left_out else manifest.files)


def _faults_of_unfinished(folder: Path, files: list[Path]) -> Iterator[Fault]:
    manifest = folder / MANIFEST
    if manifest.exists():
        yield Fault(folder, "damaged", manifest, "is not a manifest; delete it and run its stage again")
    elif not is_running(folder) and (count := sum(path.name not in BESIDE and not _is_lock(path) for path in files)):
        why = f"holds {count:,} files and no {MANIFEST}: its job was ended, or files were purged"
        yield Fault(folder, "unfinished", folder, f"{why}; run its stage again")


def _drafts(folder: Path, files: list[Path]) -> list[Fault]:
    """What killed jobs left half-written; nothing while a job is running there."""
    paths = [folder / name for name in DRAFTS if (folder / name).exists()]
    inner = (*DRAFTS, *WORK)
    paths += [path for path in files if is_partial(path.name) and path.relative_to(folder).parts[0] not in inner]
    if not paths or is_running(folder):
        return []
    return [Fault(folder, "draft", path, "was left half-written by a job that was ended") for path in paths]


def _is_lock(path: Path) -> bool:
    """`.stage.json.lock`: held by a process that makes the artifact; one that is killed leaves it, free."""
    return path.name.startswith(".") and path.suffix == ".lock"


def _faults_of_manifest(folder: Path, manifest: Manifest) -> Iterator[Fault]:
    """Another key, kind or parameters than the folder's name says."""
    path, key, kind = folder / MANIFEST, folder.absolute().name, kind_of(folder)
    if (manifest.key, manifest.kind) != (key, kind):
        why = f"is of {manifest.kind} {manifest.key}, its folder of {kind} {key}"
        yield Fault(folder, "name", path, f"{why}; the folder was renamed or copied over")
    elif HIDDEN not in str(manifest.params) and kind in KINDS:
        above = {role: Path(at).name.rpartition("-")[2] for role, at in manifest.upstream.items()}
        expected = digest(kind, manifest.version, manifest.params, above)
        if expected != key.rpartition("-")[2]:
            yield Fault(folder, "name", path, f"its parameters and inputs give {expected}, not the digest of its name")


class Inputs:
    """Contents of the artifacts that others were made from, each manifest read once: thousands share a dataset."""

    def __init__(self) -> None:
        self._contents: dict[Path, str | None] = {}

    def faults(self, folder: Path, manifest: Manifest) -> Iterator[Fault]:
        """Inputs that hold other bytes than the artifact was made from; a deleted input is no fault."""
        for role, content in manifest.inputs.items():
            above = resolve_input(folder, manifest.upstream[role])
            now = self._content(above)
            if now and now != content:
                why = f"was made from {above.name} (as {role}) with content {content}; it has {now} now"
                yield Fault(folder, "input", above / MANIFEST, f"{why}: it was made again with other bytes")

    def _content(self, folder: Path) -> str | None:
        if folder not in self._contents:
            manifest = read_manifest(folder)
            self._contents[folder] = manifest.content if manifest else None
        return self._contents[folder]


def _unknown_files(folder: Path, manifest: Manifest, files: list[Path]) -> Iterator[Fault]:
    """Files below an artifact that neither its manifest lists nor a stage leaves there."""
    for path in files:
        name = path.relative_to(folder).as_posix()
        first = name.split("/")[0]
        block = first == "blocks" and name.removesuffix(".json") + ".npy" in manifest.files
        known = name in manifest.files or name in BESIDE or first in (*WORK, *DRAFTS) or block
        if not known and not _is_lock(path) and not is_partial(path.name):
            yield Fault(folder, "unknown", path, "is not in the manifest; no stage reads it")


def _store_files(folder: Path) -> dict[str, FileRecord]:
    """The parts of a store of pairs' scores, whose names are their checksums."""
    from tandem.retrieval.pair_store import NAME

    files = {}
    for path in sorted(folder.glob("[!.]*.npy")):
        with suppress(FileNotFoundError):  # merged with others meanwhile
            if match := NAME.fullmatch(path.name):
                files[path.name] = FileRecord(bytes=path.stat().st_size, sha256=match[1])
    return files


def _faults_of_store(folder: Path) -> Iterator[Fault]:
    """What is wrong with the names in a store of pairs' scores; its own is the digest of `store.json`."""
    from tandem.retrieval.pair_store import NAME, store_name

    path, again = folder / STORE, f"the store: {SCORED_AGAIN}"
    try:
        identity = json.loads(path.read_text(encoding="utf-8"))
        if folder.absolute().name != store_name(identity["model"], identity["made_from"]):
            yield Fault(folder, "changed", path, f"does not give the store's name; {again}")
    except FileNotFoundError:
        yield Fault(folder, "missing", path, f"nothing says whose scores these are; {again}")
    except (OSError, ValueError, KeyError, TypeError):
        yield Fault(folder, "damaged", path, f"does not say whose scores these are; {again}")
    for path in sorted(folder.glob("[!.]*.npy")):
        if not NAME.fullmatch(path.name):
            yield Fault(folder, "damaged", path, f"its name is not a checksum; {SCORED_AGAIN}")
    for path in folder.glob(".*"):
        if time.time() - path.stat().st_mtime > ALIVE:
            yield Fault(folder, "draft", path, "was left half-written by a job that was ended")


def _order_files(folder: Path) -> dict[str, FileRecord]:
    """The files of an order of ids; none where it is half made: the next job that needs it makes it again."""
    try:
        files = json.loads((folder / "order.json").read_text(encoding="utf-8"))["files"]
        return {name: FileRecord(bytes=file["bytes"], sha256=file["sha256"]) for name, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
