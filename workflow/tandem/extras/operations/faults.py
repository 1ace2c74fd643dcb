"""What may be wrong with an artifact or store, as far as it shows without reading its files."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tandem.cluster.progress import FILE as PROGRESS
from tandem.extras.operations.scan import ALIVE, STORE, is_running, kind_of, read_manifest
from tandem.planning.graph import digest
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST, RECORD, FileRecord, Manifest
from tandem.store.environment import HIDDEN
from tandem.store.files import files_in, is_partial
from tandem.store.lineage import resolve_input

# Beside an artifact's files, and no part of it: logs, and what a job that is killed leaves to go on from.
BESIDE = (MANIFEST, "log.txt", RECORD, PROGRESS, ".snakemake_timestamp")
WORK = ("checkpoints", "state", "shards", "work")
DRAFTS = (".partial", ".scratch")
ORDER_RECORD = "order.json"
SCORED_AGAIN = "delete it, its pairs will be scored again"


@dataclass(frozen=True)
class Fault:
    """A difference between results and their manifests.

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


class Task(NamedTuple):
    """A file to be read and compared.

    Attributes:
        folder: the artifact's.
        name: of the file in it.
        expected: its size and sha256.
        stamp: of the manifest that says so, see `stamp`; 0 where there is none.
    """

    folder: Path
    name: str
    expected: FileRecord
    stamp: int = 0


def stamp(folder: Path) -> int:
    """When an artifact's manifest was written, in nanoseconds; 0 where there is none."""
    try:
        return (folder / MANIFEST).stat().st_mtime_ns
    except OSError:
        return 0


def of_unfinished(folder: Path) -> Iterator[Fault]:
    """Faults of a folder that has no manifest, or a damaged one."""
    manifest, files = folder / MANIFEST, list(files_in(folder))
    if manifest.exists():
        yield Fault(folder, "damaged", manifest, "is not a manifest; delete it and run its stage again")
    elif not is_running(folder):
        count = sum(path.name not in BESIDE and not _is_lock(path.name) for path in files)
        if count:
            why = f"holds {count:,} files and no {MANIFEST}: its job was ended, or files were purged"
            yield Fault(folder, "unfinished", folder, f"{why}; run its stage again")
    yield from drafts(folder, files)


def drafts(folder: Path, files: Iterable[Path]) -> list[Fault]:
    """What killed jobs left half-written; nothing while a job is running there."""
    paths = [folder / name for name in DRAFTS if (folder / name).exists()]
    inner = (*DRAFTS, *WORK)
    paths += [path for path in files if is_partial(path.name) and path.relative_to(folder).parts[0] not in inner]
    if not paths or is_running(folder):
        return []
    return [Fault(folder, "draft", path, "was left half-written by a job that was ended") for path in paths]


def _is_lock(name: str) -> bool:
    """`.stage.json.lock`: held by a process that makes the artifact; one that is killed leaves it, free."""
    return name.startswith(".") and name.endswith(".lock")


def of_manifest(folder: Path, manifest: Manifest) -> Iterator[Fault]:
    """Faults of a manifest itself: another key, kind or parameters than its folder's name says."""
    path, key, kind = folder / MANIFEST, folder.absolute().name, kind_of(folder)
    if (manifest.key, manifest.kind) != (key, kind):
        why = f"is of {manifest.kind} {manifest.key}, its folder of {kind} {key}"
        yield Fault(folder, "name", path, f"{why}; the folder was renamed or copied over")
        return
    if HIDDEN in str(manifest.params) or kind not in KINDS:
        return
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


def unknown(folder: Path, manifest: Manifest, files: Iterable[Path]) -> Iterator[Fault]:
    """Files below an artifact that neither its manifest lists nor a stage leaves there."""
    for path in files:
        name = path.relative_to(folder).as_posix()
        first = name.split("/")[0]
        block = first == "blocks" and name.removesuffix(".json") + ".npy" in manifest.files
        if name in manifest.files or name in BESIDE or first in (*WORK, *DRAFTS) or block or _is_lock(path.name):
            continue
        if not is_partial(path.name):
            yield Fault(folder, "unknown", path, "is not in the manifest; no stage reads it")


def of_pairs(folder: Path) -> Iterator[Task | Fault]:
    """A store of pairs' scores: its identity, and its parts, whose names are their checksums."""
    from tandem.search.store import NAME

    if fault := _identity(folder):
        yield fault
    for path in sorted(folder.glob("[!.]*.npy")):
        if match := NAME.fullmatch(path.name):
            with suppress(FileNotFoundError):  # merged with others meanwhile
                yield Task(folder, path.name, FileRecord(bytes=path.stat().st_size, sha256=match[1]))
        else:
            yield Fault(folder, "damaged", path, f"its name is not a checksum; {SCORED_AGAIN}")
    for path in folder.glob(".*"):
        if time.time() - path.stat().st_mtime > ALIVE:
            yield Fault(folder, "draft", path, "was left half-written by a job that was ended")


def _identity(folder: Path) -> Fault | None:
    """What is wrong with the file that says whose scores a store holds: the store's name is its digest."""
    from tandem.search.store import store_name

    path, again = folder / STORE, f"the store: {SCORED_AGAIN}"
    try:
        identity = json.loads(path.read_text(encoding="utf-8"))
        fits = folder.absolute().name == store_name(identity["model"], identity["made_from"])
    except FileNotFoundError:
        return Fault(folder, "missing", path, f"nothing says whose scores these are; {again}")
    except (OSError, ValueError, KeyError, TypeError):
        return Fault(folder, "damaged", path, f"does not say whose scores these are; {again}")
    return None if fits else Fault(folder, "changed", path, f"does not give the store's name; {again}")


def of_order(folder: Path) -> Iterator[Task]:
    """The files of an order of ids; none where it is half made: the next job that needs it makes it again."""
    try:
        files = json.loads((folder / ORDER_RECORD).read_text(encoding="utf-8"))["files"]
        records = {name: FileRecord(bytes=file["bytes"], sha256=file["sha256"]) for name, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    yield from (Task(folder, name, record) for name, record in records.items())
