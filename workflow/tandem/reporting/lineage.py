"""Where a number comes from: the stages above an artifact, read from their manifests."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.artifact import MANIFEST, Artifact, open_artifact
from tandem.errors import UserError


@dataclass(frozen=True)
class Stage:
    """An artifact as lineage shows it; `upstream` gives the key of each input by role."""

    artifact: Artifact
    upstream: dict[str, str]

    @property
    def key(self) -> str:
        """`<name>-<digest>`."""
        return self.artifact.key

    @property
    def kind(self) -> str:
        """The kind of stage."""
        return str(self.artifact.manifest["kind"])

    @property
    def name(self) -> str:
        """The key without its digest."""
        return stage_name(self.key)

    @property
    def seconds(self) -> float:
        """Wall time."""
        return float(self.artifact.manifest["seconds"])

    @property
    def params(self) -> list[tuple[str, Any]]:
        """Dotted path and value of every parameter."""
        return list(leaves(self.artifact.params).items())


@dataclass(frozen=True)
class Node:
    """A stage in the tree above a number; one met before in the tree is shown without what is above it again."""

    stage: Stage
    roles: list[str]
    above: list["Node"]
    repeated: bool


def stage_name(key: str) -> str:
    """`rocketqav2-3f2a91c0d7` → `rocketqav2`."""
    return key.rpartition("-")[0] or key


def leaves(params: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` → `{"a.b": 1}`; lists and empty objects are values."""
    flat: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, dict) and value:
            flat |= leaves(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def open_upstream(artifact: Artifact) -> dict[str, Artifact]:
    """The inputs of an artifact by role.

    A manifest names folders as the stage was called; where such a path does not stand (the results were moved), the
    same dataset, kind and key are looked for beside this artifact. An input that was deleted since is left out.
    """
    results = artifact.folder.absolute().parents[2]
    opened = {}
    for role, folder in artifact.upstream.items():
        path = Path(folder)
        if not (path / MANIFEST).is_file():
            path = results.joinpath(*path.parts[-3:])
        if (path / MANIFEST).is_file():
            opened[role] = open_artifact(path, verify=False)
    return opened


def input_of(artifact: Artifact, role: str) -> Artifact:
    """An input that is needed; a `UserError` where it was deleted since."""
    opened = open_upstream(artifact)
    if role not in opened:
        raise UserError(f"{artifact.folder}: its {role} {artifact.upstream.get(role)} is gone; run again to make it")
    return opened[role]


def walk(artifacts: Iterable[Artifact]) -> dict[str, Stage]:
    """All stages above the artifacts, themselves included, by key: every stage after its inputs."""
    found: dict[str, Stage] = {}

    def visit(artifact: Artifact) -> None:
        if artifact.key not in found:
            inputs = open_upstream(artifact)
            for above in inputs.values():
                visit(above)
            found[artifact.key] = Stage(artifact, {role: above.key for role, above in inputs.items()})

    for artifact in artifacts:
        visit(artifact)
    return found


def tree(stages: dict[str, Stage], key: str) -> Node:
    """The tree above a stage, each stage spelled out where it is met first."""
    met: set[str] = set()

    def grow(key: str, roles: list[str]) -> Node:
        """The node of a stage, reached in these roles."""
        repeated = key in met
        met.add(key)
        inputs: dict[str, list[str]] = {}
        for role, other in stages[key].upstream.items():
            inputs.setdefault(other, []).append(role)
        above = [] if repeated else [grow(other, into) for other, into in inputs.items()]
        return Node(stages[key], roles, above, repeated and bool(inputs))

    return grow(key, [])
