"""Artifacts: folders that are done exactly when their `stage.json` stands, and that say what they are made of.

A stage writes its files under a temporary folder beside them; on success each is renamed into place and the manifest
is written last. Whoever reads an artifact checks every file against the manifest first.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from pydantic import BaseModel, ValidationError
from typing_extensions import TypeVar

from tandem.config.base import Model
from tandem.config.execution import Execution
from tandem.errors import UserError
from tandem.memory import peak_mib
from tandem.redacted import redacted
from tandem.stages import KINDS
from tandem.verified import Record

M = TypeVar("M", bound=Model)
P = TypeVar("P", default=Any)
MANIFEST = "stage.json"
IMPORT = re.compile(r"^\s*from (tandem\.[\w.]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
GENERAL = {"artifact", "cluster", "config", "errors", "stages", "store"}  # what runs every stage and decides no result
NOTES = ("log.parquet", "README.md")  # of a training, with its pace, and of a model, with its commit
LIBRARIES = ("numpy", "pandas", "pyarrow", "torch", "transformers", "tokenizers", "peft", "faiss", "ir_measures")


def sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a file so that readers see the old content or the new, never a part; parents are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def write_json(path: Path, value: Any) -> None:
    """`write_text` of indented JSON with a final newline."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def validated(model: type[M], values: Any, where: str) -> M:
    """Values as a typed model; a `UserError` with a line per mistake, naming `where` and the key."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [f"{where}.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise UserError("\n".join(lines)) from None


def plain(values: Any) -> Any:
    """Parameters or options as JSON: what is set, by the names that a user writes."""
    if isinstance(values, BaseModel):
        return values.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return values


@dataclass(frozen=True)
class Artifact:
    """A finished artifact: its folder and what its manifest says."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def key(self) -> str:
        """`<name>-<digest>`, the folder's name."""
        return self.folder.name

    @property
    def params(self) -> dict[str, Any]:
        """The stage's resolved parameters."""
        params: dict[str, Any] = self.manifest["params"]
        return params

    @property
    def upstream(self) -> dict[str, str]:
        """Folder of each upstream artifact, by role."""
        upstream: dict[str, str] = self.manifest["upstream"]
        return upstream

    def params_as(self, model: type[M]) -> M:
        """The stage's parameters as its kind's model; a `UserError` if they are of another version."""
        return validated(model, self.params, str(self.folder / MANIFEST))

    def path(self, name: str) -> Path:
        """Path of one of its files; a `UserError` if the manifest does not list it."""
        if name not in self.manifest["files"]:
            have = ", ".join(sorted(self.manifest["files"]))
            raise UserError(f"{self.folder}: holds no {name}; it holds {have}")
        return self.folder / name


def open_artifact(folder: Path, kind: str | None = None, verify: bool = True) -> Artifact:
    """Read an artifact's manifest and check its files.

    Args:
        folder: the artifact's folder, or its `stage.json`.
        kind: the kind it must be of, if it matters.
        verify: compare every file's size and sha256 with the manifest, unless that was done and it has not changed
            since (`verified.py`).
    Raises:
        UserError: no manifest, another kind, or a file that is missing or changed.
    """
    folder = folder.parent if folder.name == MANIFEST else folder
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder}: not a finished artifact, {MANIFEST} is missing; run its stage first") from None
    except ValueError as error:
        raise UserError(f"{folder / MANIFEST}: not valid JSON ({error}); delete it and run its stage again") from None
    if not is_manifest(manifest):
        raise UserError(f"{folder / MANIFEST}: is no manifest; delete it and run its stage again")
    if kind is not None and manifest["kind"] != kind:
        raise UserError(f"{folder}: is a {manifest['kind']}, expected a {kind}")
    artifact = Artifact(folder, manifest)
    if verify:
        record = Record(folder, manifest["files"])
        check_files(artifact, record.unread())
        record.keep()
    return artifact


def is_manifest(told: Any) -> bool:
    """Whether JSON has the form of a manifest: what it must tell of its files is there."""
    if not isinstance(told, dict) or not told.keys() >= {"kind", "files"}:
        return False
    files, maps = told["files"], [told.get(name, {}) for name in ("upstream", "inputs", "params")]
    return all(isinstance(one, dict) for one in (files, *maps)) and all(
        isinstance(file, dict) and isinstance(file.get("bytes"), int) and isinstance(file.get("sha256"), str)
        for file in files.values()
    )


def check_files(artifact: Artifact, names: Iterable[str]) -> None:
    """Compare size and sha256 of some of an artifact's files with its manifest; a `UserError` names the first other."""
    for name in names:
        path, told = artifact.path(name), artifact.manifest["files"][name]
        size = path.stat().st_size if path.is_file() else None
        if size != told["bytes"] or sha256(path) != told["sha256"]:
            found = "missing" if size is None else f"changed since it was written ({size} bytes)"
            raise UserError(f"{path}: {found}; delete {artifact.folder / MANIFEST} and run again to rebuild it")


@dataclass(frozen=True)
class Job(Generic[P]):
    """What a stage's function gets.

    Attributes:
        kind: the kind of stage.
        out: the artifact's folder.
        params: resolved parameters of the kind's model: they decide the result.
        inputs: upstream artifacts by role, verified.
        execution: how to run: shards, workers, budgets. Never changes the result.
        started: when the job was read, by a clock that nobody puts back, in seconds.
    """

    kind: str
    out: Path
    params: P
    inputs: dict[str, Artifact]
    execution: Execution = field(default_factory=Execution)
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Validate parameters and options that come as plain mappings, from a command line or a test."""
        model = KINDS[self.kind].params if self.kind in KINDS else None
        if model is not None and not isinstance(self.params, model):
            object.__setattr__(self, "params", validated(model, self.params, f"{self.kind}: --params"))
        if not isinstance(self.execution, Execution):
            object.__setattr__(self, "execution", validated(Execution, self.execution, f"{self.kind}: --run"))

    @property
    def key(self) -> str:
        """`<name>-<digest>` of the artifact being made."""
        return self.out.name

    def many(self, role: str) -> list[Artifact]:
        """Inputs of a role that takes several (`judge.0`, `judge.1`, …), in order."""
        named = sorted((int(r.split(".")[1]), a) for r, a in self.inputs.items() if r.startswith(f"{role}."))
        return [artifact for _, artifact in named]


@dataclass
class Draft:
    """An artifact being written: files go to a temporary folder, facts into the manifest.

    Attributes:
        folder: the temporary folder.
        facts: what else the manifest says.
        kept: files that are in their place: name, with size and hash as in the manifest.
    """

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Where to write a file of the artifact; parents are created."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def keep(self, name: str, size: int, digest: str) -> None:
        """Take over a file that stands under its final name already; its writer told size in bytes and sha256."""
        self.kept[name] = {"bytes": size, "sha256": digest}


@contextmanager
def writing(job: Job) -> Iterator[Draft]:
    """Make `job`'s artifact: yields a `Draft`; on success moves its files into place and writes the manifest last.

    On an exception nothing appears under a final name. `draft.facts` (row counts, device, …) become manifest keys.
    """
    temporary = job.out / ".partial"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    draft = Draft(temporary)
    try:
        yield draft
        files = dict(draft.kept)
        for path in sorted(p for p in temporary.rglob("*") if p.is_file()):
            name = str(path.relative_to(temporary))
            files[name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
            (job.out / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, job.out / name)
        files = dict(sorted(files.items(), key=lambda file: Path(file[0])))
        write_json(job.out / MANIFEST, _manifest(job, files, draft.facts))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def content(manifest: dict[str, Any], notes: bool = False) -> str:
    """16 hex digits over the names and checksums of an artifact's files: equal for equal bytes, whenever made.

    Without its notes on how it was made (pace, commit), other at every making; earlier versions counted them (`notes`).
    """
    files = manifest.get("files", {}).items()
    told = sorted((name, file["sha256"]) for name, file in files if notes or Path(name).name not in NOTES)
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _manifest(job: Job, files: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """What is known about an artifact, in the order a person would ask; no secret that a URL carries."""
    told: dict[str, Any] = redacted(_known(job, files, facts))
    return told


def _known(job: Job, files: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """`_manifest` as it is."""
    return {
        "kind": job.kind,
        "key": job.key,
        "version": KINDS[job.kind].version,
        "params": plain(job.params),
        "upstream": {role: str(artifact.folder) for role, artifact in sorted(job.inputs.items())},
        "inputs": {role: content(artifact.manifest) for role, artifact in sorted(job.inputs.items())},
        "files": files,
        **facts,
        "execution": plain(job.execution),
        "modules": modules_hash(job.kind),
        **provenance(),
        "machine": {"node": platform.node(), "python": platform.python_version(), "cores": os.cpu_count()},
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(time.monotonic() - job.started, 1),
        "peak_memory_mib": peak_mib(),
    }


def provenance() -> dict[str, Any]:
    """What this process computes with: versions of the libraries it imported, the commit and whether it is dirty."""
    return {"libraries": {name: _version(name) for name in LIBRARIES if name in sys.modules}, **_commit()}


def _version(module: str) -> str:
    """An imported library's version; asking its distribution by name costs a search through all that is installed."""
    return str(getattr(sys.modules[module], "__version__", None) or importlib.metadata.version(module))


def modules_hash(kind: str) -> str:
    """10 hex digits over the sources that decide a kind's result: a changed one is worth a warning, not a rebuild."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sources(kind):
        digest.update(str(source.relative_to(package)).encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:10]


def sources(kind: str) -> list[Path]:
    """The files of the package that decide a kind's result: its module and what that imports, directly or not."""
    package = Path(__file__).parent
    found: set[Path] = set()
    waiting = [f"tandem.{KINDS[kind].run.partition(':')[0]}"]
    while waiting:
        path = package.joinpath(*waiting.pop().split(".")[1:])
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if source in found or not source.is_file():
            continue
        found.add(source)
        for line, names in IMPORT.findall(source.read_text(encoding="utf-8")):
            if line.split(".")[1] not in GENERAL:
                waiting += [line, *(f"{line}.{name.strip()}" for name in names.strip("()").split(","))]
    return sorted(found)


def _commit() -> dict[str, Any]:
    """The checkout's commit and whether tracked files differ from it; nulls outside a git checkout."""

    def git(*words: str) -> str | None:
        """What git prints, None where it fails."""
        command = ["git", "-C", str(Path(__file__).parent), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}
