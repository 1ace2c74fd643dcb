"""Read the job of a stage's function from its command line, and write its artifact."""

import gc
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic

from pydantic import BaseModel
from typing_extensions import TypeVar

from tandem.config.parsing import read, with_secrets
from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.plugins import load_plugins
from tandem.redaction import redacted
from tandem.registry import import_module
from tandem.stages import KINDS, shard_commands
from tandem.stages.base import Entry, Json, flag_value, nest, parse_value
from tandem.store.artifact import MANIFEST, Artifact, FileRecord, Machine, Manifest, open_artifact
from tandem.store.environment import hash_looked_up, modules_hash, peak_mib, provenance
from tandem.store.files import sha256, write_json

_P = TypeVar("_P", default=Any)


@dataclass(frozen=True)
class Job(Generic[_P]):
    """Hold the work that a stage's function gets.

    Attributes:
        params: resolved parameters, of the kind's model: they determine the result.
        inputs: upstream artifacts by role, verified.
        execution: how to run: shards, workers, budgets. Never changes the result.
        started: when it began, in seconds of the monotonic clock.
    """

    kind: str
    out: Path
    params: _P
    inputs: dict[str, Artifact]
    execution: Execution = field(default_factory=lambda: Execution())
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Validate parameters and options that come as plain mappings, from a command line or a test."""
        model = KINDS[self.kind].params if self.kind in KINDS else None
        if model is not None and not isinstance(self.params, model):
            object.__setattr__(self, "params", read(model, self.params, f"{self.kind}: --params"))
        if not isinstance(self.execution, Execution):
            object.__setattr__(
                self, "execution", read(Execution, self.execution, f"{self.kind}: --run")
            )

    @property
    def key(self) -> str:
        """Return `<name>-<digest>` of the artifact that is made."""
        return self.out.name

    def many(self, role: str) -> list[Artifact]:
        """Return the inputs of a role that takes several (`judge.0`, `judge.1`, …), in order."""
        numbered = sorted(
            (int(r.split(".")[1]), a) for r, a in self.inputs.items() if r.startswith(f"{role}.")
        )
        return [artifact for _, artifact in numbered]


def read_job(kind: str, words: list[str], started: float | None = None) -> Job:
    """Return the job that a stage's command line describes; upstream artifacts are opened and verified.

    Args:
        kind: the kind of stage.
        words: `--params.<path> <value>` sets a parameter (JSON, or plain text), `--in.<role> <folder>` names an
            upstream artifact, `--run.<name> <value>` is an execution option, `--out` is the artifact's manifest.
        started: when the job began, None for now; the job's time includes importing its module and comparing its
            inputs.
    """
    began = time.monotonic() if started is None else started
    if len(words) % 2:
        raise UserError(f"{kind}: {words[-1]} has no value")
    flags = dict(zip(words[::2], words[1::2], strict=True))
    groups: dict[str, dict[str, str]] = {"--params.": {}, "--in.": {}, "--run.": {}}
    out = flags.pop("--out", None)
    for flag, text in flags.items():
        prefix = f"{flag.partition('.')[0]}."
        if prefix not in groups:
            raise UserError(
                f"{kind}: unknown flag {flag}; allowed are --params.…, --in.…, --run.… and --out"
            )
        groups[prefix][flag.removeprefix(prefix)] = text
    if out is None:
        raise UserError(f"{kind}: --out is missing: the artifact's {kind}/<key>/{MANIFEST}")
    options = with_secrets(
        {name: parse_value(text) for name, text in groups["--run."].items()}, kind
    )
    execution = read(Execution, options, f"{kind}: --run")
    loaded = [plugin.label for plugin in load_plugins(execution.plugins)]
    planned = parse_value(flags.get("--params.plugins", "[]"))
    if not set(planned) <= set(loaded):
        changed = f"{', '.join(planned)} was planned, but now it is {', '.join(loaded)}"
        raise UserError(
            f"{kind}: plugins: {changed}; it was edited meanwhile, run the same command again"
        )
    inputs = {
        role: open_artifact(Path(folder), verify=role not in KINDS[kind].lazy)
        for role, folder in groups["--in."].items()
    }
    return Job(
        kind=kind,
        out=Path(out).parent,
        params=nest(
            with_secrets(
                {path: parse_value(text) for path, text in groups["--params."].items()}, kind
            )
        ),
        inputs=load("extras.stage_inputs:StageInputs")(kind, inputs),
        execution=execution,
        started=began,
    )


def run_shard(command: str, words: list[str]) -> None:
    """Compute a shard by its command; facts go to `--out`, `<artifact>/shards/<shard>-of-<shards>.json`."""
    kind, function = shard_commands()[command]
    job = read_job(kind.name, words)
    shard, shards = job.execution.shard, job.execution.shards
    if shard is None or not 0 <= shard < shards:
        raise UserError(
            f"{job.kind} shard: --run.shard is {shard}; of {shards} shards, 0 to {shards - 1} are allowed"
        )
    facts = load(function)(replace(job, out=job.out.parent))
    write_json(Path(flag_value(words, "--out")), facts)


def load(entry: Entry) -> Callable[..., Any]:
    """Import the function or class behind `module:name` of this package, when needed: torch alone takes seconds."""
    if not isinstance(entry, str):
        return entry
    module, name = entry.split(":")
    module = f"tandem.{module}"
    with nullcontext() if module in sys.modules else paused_gc():
        function: Callable[..., Any] = getattr(import_module(module), name)
    return function


@contextmanager
def paused_gc() -> Iterator[None]:
    """Pause garbage collection while libraries are imported, and never examine their objects: a seventh less time."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if is_enabled:
            gc.enable()


@dataclass
class Draft:
    """Hold an artifact that is being written.

    Attributes:
        folder: the temporary folder.
        facts: facts for the manifest.
        files: the files that already have their final names.
    """

    folder: Path
    facts: Json = field(default_factory=dict)
    files: dict[str, FileRecord] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Return the path at which to write a file of the artifact; its parents are created."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add(self, name: str, size: int, digest: str) -> None:
        """Add a file that has its final name already, with its size in bytes and sha256."""
        self.files[name] = FileRecord(bytes=size, sha256=digest)


@contextmanager
def writing(job: Job) -> Iterator[Draft]:
    """Make the artifact of `job`: on success a `Draft`'s files move into place, the manifest last; else none does."""
    temporary = job.out / ".partial"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    draft = Draft(temporary)
    try:
        yield draft
        for path in sorted(p for p in temporary.rglob("*") if p.is_file()):
            name = str(path.relative_to(temporary))
            with suppress(OSError):  # safetensors has its files readable by their owner alone
                path.chmod(temporary.stat().st_mode & 0o666)
            draft.add(name, path.stat().st_size, sha256(path))
            (job.out / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, job.out / name)
        write_json(job.out / MANIFEST, redacted(_manifest(job, draft).model_dump()))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def plain(params: Any) -> Any:
    """Return parameters as JSON, defaults included, by the names that a user writes."""
    return params.model_dump(mode="json") if isinstance(params, BaseModel) else params


def _manifest(job: Job, draft: Draft) -> Manifest:
    libraries, commit, dirty = provenance()
    inputs = sorted(job.inputs.items())
    return Manifest(
        kind=job.kind,
        key=job.key,
        version=KINDS[job.kind].version,
        params=plain(job.params),
        upstream={role: str(artifact.folder) for role, artifact in inputs},
        inputs={role: artifact.manifest.content for role, artifact in inputs},
        files=dict(sorted(draft.files.items(), key=lambda file: Path(file[0]))),
        facts=draft.facts,
        execution=job.execution.model_dump(mode="json", exclude_unset=True),
        modules=modules_hash(job.kind),
        looked_up=hash_looked_up(job.kind),
        libraries=libraries,
        commit=commit,
        dirty=dirty,
        machine=Machine(
            node=platform.node(), python=platform.python_version(), cores=os.cpu_count()
        ),
        finished=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seconds=round(time.monotonic() - job.started, 1),
        peak_memory_mib=peak_mib(),
    )
