"""Artifacts: folders that are done exactly when their `stage.json` exists, which records what they are made from.

Before an artifact is used, its files are compared with its manifest. For large artifacts `.verified.json` next to the
manifest records sha256 and state (size, times of change, inode) of each file at its last comparison; a file is read
again only if either differs. This misses bytes that change below the file system, and files that are rewritten in
place with the clock turned back.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from tandem.config.base import Model
from tandem.config.parsing import read
from tandem.errors import UserError
from tandem.stages.base import Json
from tandem.store.files import replacing, sha256

_M = TypeVar("_M", bound=Model)
MANIFEST = "stage.json"
ARCHIVE_SUFFIX = ".tar"  # for an artifact as one object (extras/archive.py)
# the log of a training, with its pace, and the card of a model, with its commit
NOTES = ("log.parquet", "README.md")
RECORD = ".verified.json"
LARGE_ARTIFACT_BYTES = 64 << 20  # smaller artifacts are hashed in a tenth of a second
# nanoseconds since a file's last change: coarser than any file system's clock
SETTLED = 5_000_000_000


class Record(BaseModel):
    """A part of a manifest: every value has the type that it was written with, unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


class FileRecord(Record):
    """Size in bytes and sha256 of a file."""

    bytes: int
    sha256: str


class Machine(Record):
    """Where an artifact was made."""

    node: str = ""
    python: str = ""
    cores: int | None = None


class Manifest(Record):
    """What `stage.json` records about an artifact, in the order in which a person would ask.

    Attributes:
        upstream: role → folder of the input, as its stage was called.
        inputs: role → `content` of the input that was read.
        facts: what the stage itself recorded: row counts, device, precision, ….
        execution: options that change no result.
        modules: `modules_hash` of the kind's sources.
        looked_up: each module that a name of the configuration led to, for instance a loss's → its `hash_module`.
    """

    kind: str
    key: str
    version: int
    params: Json
    upstream: dict[str, str]
    inputs: dict[str, str]
    files: dict[str, FileRecord]
    facts: Json = {}
    execution: Json = {}
    modules: str = ""
    looked_up: dict[str, str] = {}
    libraries: dict[str, str] = {}
    commit: str | None = None
    dirty: bool | None = None
    machine: Machine = Machine()
    finished: str = ""
    seconds: float = 0.0
    peak_memory_mib: int | None = None

    @model_validator(mode="after")
    def _every_input_has_a_folder(self) -> "Manifest":
        if not self.inputs.keys() <= self.upstream.keys():
            raise ValueError("an input has no folder in upstream")
        return self

    @cached_property
    def content(self) -> str:
        """Return 16 hex digits over names and checksums of the files, without notes on pace and commit, which vary."""
        checksums = sorted(
            item for item in self.checksums.items() if Path(item[0]).name not in NOTES
        )
        return hashlib.sha256(json.dumps(checksums).encode()).hexdigest()[:16]

    @property
    def checksums(self) -> dict[str, str]:
        """Return name → sha256 of every file."""
        return {name: file.sha256 for name, file in self.files.items()}

    @property
    def bytes(self) -> int:
        """Return the size of all files."""
        return sum(file.bytes for file in self.files.values())


@dataclass(frozen=True)
class Artifact:
    """A finished artifact: its folder and its manifest."""

    folder: Path
    manifest: Manifest

    @property
    def key(self) -> str:
        """`<name>-<digest>`, the folder's name."""
        return self.folder.name

    @property
    def kind(self) -> str:
        """Return the kind of stage that made it."""
        return self.manifest.kind

    @property
    def params(self) -> Json:
        """Return the stage's resolved parameters as JSON; `params_as` types them."""
        return self.manifest.params

    @property
    def upstream(self) -> dict[str, str]:
        """Return the folder of each upstream artifact, by role."""
        return self.manifest.upstream

    def params_as(self, model: type[_M]) -> _M:
        """Return the stage's parameters as its kind's model; a `UserError` if they are of another version."""
        return read(model, self.params, str(self.folder / MANIFEST))

    def path(self, name: str) -> Path:
        """Return the path of one of its files; a `UserError` if the manifest does not list it."""
        if name not in self.manifest.files:
            raise UserError(
                f"{self.folder}: holds no {name}; it holds {', '.join(sorted(self.manifest.files))}"
            )
        return self.folder / name


def open_artifact(folder: Path, kind: str | None = None, verify: bool = True) -> Artifact:
    """Read the manifest of an artifact (a folder, or its `stage.json`) and check its files.

    Args:
        kind: the kind that it must be of; None: any.
        verify: compare every file with the manifest, unless that was done before and the file has not changed since.
    Raises:
        UserError: no manifest, another kind, or a file that is missing or changed.
    """
    folder = folder.parent if folder.name == MANIFEST else folder
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{folder}: not a finished artifact, {MANIFEST} is missing; run its stage first"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{folder / MANIFEST}: not valid JSON ({error}); delete it and run its stage again"
        ) from None
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError:
        raise UserError(
            f"{folder / MANIFEST}: is not a manifest; delete it and run its stage again"
        ) from None
    if kind is not None and manifest.kind != kind:
        raise UserError(f"{folder}: is a {manifest.kind}, expected a {kind}")
    artifact = Artifact(folder, manifest)
    if verify:
        _check_changed(artifact)
    return artifact


def check_files(artifact: Artifact, names: Iterable[str]) -> None:
    """Compare size and sha256 of files with the manifest; a `UserError` names the first one that differs."""
    for name in names:
        path, expected = artifact.path(name), artifact.manifest.files[name]
        size = path.stat().st_size if path.is_file() else None
        if size != expected.bytes or sha256(path) != expected.sha256:
            state = "missing" if size is None else f"changed since it was written ({size} bytes)"
            raise UserError(
                f"{path}: {state}; delete {artifact.folder / MANIFEST} and run again to rebuild it"
            )


def _check_changed(artifact: Artifact) -> None:
    """Do as `check_files`, but skip files of a large artifact that have not changed since the last comparison."""
    files, path = artifact.manifest.files, artifact.folder / RECORD
    if artifact.manifest.bytes < LARGE_ARTIFACT_BYTES:
        check_files(artifact, files)
        return
    known = None
    with suppress(OSError, ValueError):
        known = json.loads(path.read_text(encoding="utf-8"))
    known = known if isinstance(known, dict) else {}
    states: dict[str, list[Any]] = {}  # states of the files that exist
    for name, file in files.items():
        with suppress(OSError):
            stat = os.stat(artifact.folder / name)
            states[name] = [
                file.sha256,
                stat.st_size,
                stat.st_mtime_ns,
                stat.st_ctime_ns,
                stat.st_ino,
            ]
    check_files(
        artifact, [name for name in files if name not in states or known.get(name) != states[name]]
    )
    latest = time.time_ns() - SETTLED
    settled = {name: state for name, state in states.items() if max(state[2:4]) < latest}
    if settled and settled != known:
        with suppress(OSError), replacing(path) as partial:
            partial.write_text(json.dumps(settled), encoding="utf-8")
