"""Why two artifacts differ, in words; and how two artifacts with the same key do."""

from collections.abc import Iterator
from itertools import groupby

from tandem.stages.base import Json, flatten
from tandem.store.artifact import Artifact
from tandem.store.lineage import Cause, differing_paths, quote_parameter

_FEW = 3  # differences that are each named in a full line
NOT_IN_KEYS = (
    "inputs",
    "modules",
    "looked_up",
    "commit",
    "dirty",
    "libraries",
    "machine",
    "execution",
)


def differences_beside_keys(artifact: Artifact, other: Artifact) -> Iterator[str]:
    """Yield how two artifacts of one key differ: code, libraries, machine, bytes. None should change a result."""
    values, other_values = _beside_key(artifact), _beside_key(other)
    for path in differing_paths(values, other_values):
        yield f"{path} is {quote_parameter(values, path)}, was {quote_parameter(other_values, path)}"
    files, other_files = artifact.manifest.files, other.manifest.files
    differ = [name for name in {**files, **other_files} if files.get(name) != other_files.get(name)]
    if differ:
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        yield f"other bytes in {', '.join(differ[:3])}{more}"


def _beside_key(artifact: Artifact) -> Json:
    manifest = artifact.manifest
    values = manifest.model_dump(include=set(NOT_IN_KEYS))
    values |= {
        name: manifest.facts[name] for name in ("device", "precision") if name in manifest.facts
    }
    return flatten({name: value for name, value in values.items() if value is not None})


def explain(artifact: Artifact, other: Artifact, roots: list[Cause]) -> Iterator[str]:
    """Yield the differences of two artifacts, or of stages above them, as lines or as a paragraph per stage."""
    head = f"{artifact.key} differs from {other.key}:"
    if len(roots) <= _FEW:
        yield from (
            f"{head} {_where(artifact, root)}{root.what} is {root.now}, was {root.before}"
            for root in roots
        )
        return
    yield head
    for where, group in groupby(roots, lambda root: _where(artifact, root)):
        yield f"  {where.rstrip()}" if where else "  itself:"
        yield from (f"    {root.what} is {root.now}, was {root.before}" for root in group)


def _where(artifact: Artifact, cause: Cause) -> str:
    """Return `model de-0123456789 differs from de-9876543210: `; empty for the artifact itself."""
    if cause.stage.key == artifact.key:
        return ""
    return f"{cause.stage.kind} {cause.stage.key} differs from {cause.other.key}: "
