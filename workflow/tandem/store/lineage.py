"""Find the stages above an artifact from their manifests, and explain why two artifacts differ."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.errors import UserError
from tandem.stages import Kind, declaration
from tandem.stages.base import Json, flatten
from tandem.store.artifact import MANIFEST, Artifact, open_artifact


@dataclass(frozen=True)
class BuiltStage:
    """Hold an artifact as lineage shows it; `upstream` has the key of each input by role."""

    artifact: Artifact
    upstream: dict[str, str]

    @property
    def key(self) -> str:
        """`<name>-<digest>`."""
        return self.artifact.key

    @property
    def kind(self) -> str:
        """The kind of stage."""
        return self.artifact.kind

    @property
    def declared(self) -> Kind:
        """The declaration of its kind."""
        return declaration(self.kind)

    @property
    def name(self) -> str:
        """The key without its digest."""
        return stage_name(self.key)

    @property
    def seconds(self) -> float:
        """Wall time."""
        return self.artifact.manifest.seconds

    @property
    def params(self) -> list[tuple[str, Any]]:
        """Dotted path and value of every parameter."""
        return list(flatten(self.artifact.params).items())


def stage_name(key: str) -> str:
    """Return a key without its digest: `rocketqav2-3f2a91c0d7` → `rocketqav2`."""
    return key.rpartition("-")[0] or key


def resolve_input(folder: Path, recorded: str) -> Path:
    """Return an input's folder: by its dataset, kind and key next to the artifact's, else as recorded."""
    path = Path(recorded)
    beside = folder.absolute().parents[2].joinpath(*path.parts[-3:])
    return beside if (beside / MANIFEST).is_file() else path


def open_upstream(artifact: Artifact) -> dict[str, Artifact]:
    """Return the inputs of an artifact by role, without inputs that have been deleted."""
    folders = {
        role: resolve_input(artifact.folder, recorded)
        for role, recorded in artifact.upstream.items()
    }
    return {
        role: open_artifact(path, verify=False)
        for role, path in folders.items()
        if (path / MANIFEST).is_file()
    }


def input_of(artifact: Artifact, role: str) -> Artifact:
    """Return an input that is needed; a `UserError` if it has been deleted."""
    opened = open_upstream(artifact)
    if role not in opened:
        raise UserError(
            f"{artifact.folder}: its {role} {artifact.upstream.get(role)} is gone; run again to make it"
        )
    return opened[role]


def walk(artifacts: Iterable[Artifact]) -> dict[str, BuiltStage]:
    """Return all stages above the artifacts, and these themselves, by key; every stage comes after its inputs."""
    stages: dict[str, BuiltStage] = {}

    def visit(artifact: Artifact) -> None:
        """Add an artifact's stage after those of its inputs."""
        if artifact.key not in stages:
            inputs = open_upstream(artifact)
            for above in inputs.values():
                visit(above)
            stages[artifact.key] = BuiltStage(
                artifact, {role: above.key for role, above in inputs.items()}
            )

    for artifact in artifacts:
        visit(artifact)
    return stages


@dataclass(frozen=True)
class Cause:
    """A root of a difference: a parameter, version or input of `stage` that is `now` and was `before` in `other`."""

    stage: Artifact
    other: Artifact
    what: str
    now: str
    before: str


def causes(
    artifact: Artifact,
    other: Artifact,
    renamed: bool = False,
    visited: set[tuple[str, str]] | None = None,
) -> Iterator[Cause]:
    """Yield every cause of the difference between two artifacts once: first their own parameters, then their inputs'.

    Inputs of the same name are compared in turn; an input of another name is a cause itself. With `renamed`, to compare
    two systems instead of variants, inputs of the same kind are compared in turn whatever their names.
    """
    visited = set() if visited is None else visited
    if artifact.key == other.key or (artifact.key, other.key) in visited:
        return
    visited.add((artifact.key, other.key))
    version = f"the version of {artifact.kind}"
    params, other_params = (
        {version: a.manifest.version, **flatten(a.params)} for a in (artifact, other)
    )
    if artifact.kind != other.kind:  # parameters that only one of them knows explain nothing
        yield Cause(artifact, other, "its kind", artifact.kind, other.kind)
        shared = [path for path in params if path in other_params and path != version]
        params, other_params = (
            {path: values[path] for path in shared} for values in (params, other_params)
        )
    for path in differing_paths(params, other_params):
        yield Cause(
            artifact,
            other,
            path,
            quote_parameter(params, path),
            quote_parameter(other_params, path),
        )
    inputs, other_inputs = open_upstream(artifact), open_upstream(other)
    keys = {role: Path(folder).name for role, folder in artifact.upstream.items()}
    other_keys = {role: Path(folder).name for role, folder in other.upstream.items()}
    for role in {**keys, **other_keys}:
        pair = keys.get(role, ""), other_keys.get(role, "")
        if pair[0] == pair[1] or pair in visited:
            continue
        ours, theirs = inputs.get(role), other_inputs.get(role)
        if (
            ours
            and theirs
            and ours.kind == theirs.kind
            and (renamed or stage_name(ours.key) == stage_name(theirs.key))
        ):
            yield from causes(ours, theirs, renamed, visited)
            # with equal digests only their names differ
            if ours.key.rpartition("-")[2] != theirs.key.rpartition("-")[2]:
                continue
        now, before = _input(keys, inputs, role), _input(other_keys, other_inputs, role)
        yield Cause(artifact, other, f"its input {role}", now, before)


def differing_paths(params: Json, other: Json) -> list[str]:
    """Return the paths whose values differ; as in keys, 1, 1.0 and true are three different values."""
    ours, theirs = (
        {path: json.dumps(value, sort_keys=True) for path, value in p.items()}
        for p in (params, other)
    )
    return [path for path in {**params, **other} if ours.get(path) != theirs.get(path)]


def quote_parameter(params: Json, path: str) -> str:
    """Return a parameter's value as messages show it, or that it is not set."""
    return repr(params[path]) if path in params else "not set"


def _input(keys: dict[str, str], present: dict[str, Artifact], role: str) -> str:
    if role not in keys:
        return "absent"
    return keys[role] if role in present else f"{keys[role]} (deleted since)"
