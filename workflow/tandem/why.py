"""What makes an artifact another than a second one: roots in parameters, versions and inputs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tandem.artifact import Artifact
from tandem.reporting.lineage import leaves, open_upstream, stage_name

FEW = 3  # differences that are told in full lines
ELSE = ("inputs", "modules", "commit", "dirty", "libraries", "machine", "device", "precision", "execution")


@dataclass(frozen=True)
class Cause:
    """A root of a difference: a parameter, version or input of `stage` that is `now` and was `before` in `other`."""

    stage: Artifact
    other: Artifact
    what: str
    now: str
    before: str


def causes(artifact: Artifact, other: Artifact, renamed: bool = False) -> Iterator[Cause]:
    """Every root of the difference of two artifacts, each once: own parameters first, then those of the inputs.

    An input of another kind or name is a root itself; one of the same name is followed to what differs in it.

    Args:
        artifact: which is asked about.
        other: what it is compared with.
        renamed: follow inputs of the same kind too that are called otherwise: two systems are compared, not variants.
    """
    yield from _causes(artifact, other, renamed, set())


def _causes(artifact: Artifact, other: Artifact, renamed: bool, met: set[tuple[str, str]]) -> Iterator[Cause]:
    """`causes`, skipping pairs that were compared already."""
    if artifact.key == other.key or (artifact.key, other.key) in met:
        return
    met.add((artifact.key, other.key))
    if artifact.manifest["version"] != other.manifest["version"]:
        now, before = artifact.manifest["version"], other.manifest["version"]
        yield Cause(artifact, other, f"the version of {artifact.manifest['kind']}", str(now), str(before))
    own, its = leaves(artifact.params), leaves(other.params)
    for path in unlike(own, its):
        yield Cause(artifact, other, path, _shown(own, path), _shown(its, path))
    above, beside = open_upstream(artifact), open_upstream(other)
    keys, others = ({role: Path(at).name for role, at in one.upstream.items()} for one in (artifact, other))
    for role in [*keys, *(role for role in others if role not in keys)]:
        mine, theirs = above.get(role), beside.get(role)
        if keys.get(role) == others.get(role) or (keys.get(role, ""), others.get(role, "")) in met:
            continue
        if mine is not None and theirs is not None and _alike(mine, theirs, renamed):
            yield from _causes(mine, theirs, renamed, met)
            if mine.key.rpartition("-")[2] != theirs.key.rpartition("-")[2]:  # else they differ in their names alone
                continue
        yield Cause(artifact, other, f"its input {role}", _input(keys, above, role), _input(others, beside, role))


def unlike(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The paths whose values differ as keys tell them apart: 1, 1.0 and true are three values."""
    paths = [*one, *(path for path in other if path not in one)]
    return [path for path in paths if path not in one or path not in other or _text(one[path]) != _text(other[path])]


def _text(value: Any) -> str:
    """A value as a key is made of it."""
    return json.dumps(value, sort_keys=True)


def _input(keys: dict[str, str], there: dict[str, Artifact], role: str) -> str:
    """An input's key, and whether it was deleted since; `absent` where there was none."""
    if role not in keys:
        return "absent"
    return keys[role] if role in there else f"{keys[role]} (deleted since)"


def otherwise(artifact: Artifact, other: Artifact) -> Iterator[str]:
    """What else tells two artifacts of one key apart, made twice or in two places: code, libraries, machine, bytes.

    Not parts of a key: nothing of this should change a result, but it is where to look if one has changed.
    """
    told = {name: artifact.manifest.get(name) for name in ELSE}, {name: other.manifest.get(name) for name in ELSE}
    own, its = (leaves({name: value for name, value in one.items() if value is not None}) for one in told)
    for path in unlike(own, its):
        yield f"{path} is {_shown(own, path)}, was {_shown(its, path)}"
    files, others = artifact.manifest["files"], other.manifest["files"]
    differ = [name for name in {**files, **others} if files.get(name) != others.get(name)]
    if differ:
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        yield f"other bytes in {', '.join(differ[:3])}{more}"


def _alike(one: Artifact, other: Artifact, renamed: bool) -> bool:
    """Whether two artifacts are variants of one stage; of one kind is enough for those that are called otherwise."""
    same_kind = one.manifest["kind"] == other.manifest["kind"]
    return bool(same_kind and (renamed or stage_name(one.key) == stage_name(other.key)))


def _shown(params: dict[str, Any], path: str) -> str:
    """A parameter's value, or that it is not set."""
    return repr(params[path]) if path in params else "not set"


def explain(artifact: Artifact, other: Artifact, found: list[Cause]) -> Iterator[str]:
    """What differs, and in which stage above if not in the artifact itself: a line each, or a paragraph a stage."""
    head = f"{artifact.key} differs from {other.key}:"
    if len(found) <= FEW:
        yield from (f"{head} {_where(artifact, one)}{one.what} is {one.now}, was {one.before}" for one in found)
        return
    yield head
    for where, group in groupby(found, lambda one: _where(artifact, one)):
        yield f"  {where.rstrip()}" if where else "  itself:"
        yield from (f"    {one.what} is {one.now}, was {one.before}" for one in group)


def _where(artifact: Artifact, cause: Cause) -> str:
    """`model de-0123456789 differs from de-9876543210: `; empty for what differs in the artifact itself."""
    if cause.stage.key == artifact.key:
        return ""
    return f"{cause.stage.manifest['kind']} {cause.stage.key} differs from {cause.other.key}: "
