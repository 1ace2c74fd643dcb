"""The command `why`: what makes an artifact another than its nearest sibling."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.artifact import MANIFEST, Artifact, open_artifact
from tandem.errors import UserError
from tandem.reporting.lineage import leaves, open_upstream, stage_name

RESULTS = Path("results")
ELSE = ("inputs", "modules", "commit", "dirty", "libraries", "machine", "device", "precision", "execution")


@dataclass(frozen=True)
class Cause:
    """A root of a difference: a parameter, version or input of `stage` that is `now` and was `before` in `other`."""

    stage: Artifact
    other: Artifact
    what: str
    now: str
    before: str


def main(words: list[str]) -> int:
    """`why A [B]`: prints why artifact A is another than B, or than its nearest sibling.

    A and B are folders, or keys below results/. The nearest sibling has the same dataset, kind and name and the fewest
    differing roots; among equals, one finished before A, then the one finished last.
    """
    if len(words) not in (1, 2):
        raise UserError(f"why: takes one or two artifacts (folders or keys), {len(words)} were given")
    artifact = find(words[0])
    others = [find(words[1])] if len(words) == 2 else siblings(artifact)
    if not others:
        told = f"no other {artifact.manifest['kind']} named {stage_name(artifact.key)} is finished beside it"
        print(f"{artifact.key} has no sibling: {told}")
        return 0
    nearest = min(others, key=lambda other: _distance(artifact, other))
    found = list(causes(artifact, nearest))
    if not found:
        more = list(otherwise(artifact, nearest)) if artifact.folder.absolute() != nearest.folder.absolute() else []
        print(f"{artifact.key} does not differ from {nearest.key}{' in what its key tells, but:' if more else ''}")
        for line in more:
            print(f"  {line}")
    for cause in found:
        print(explain(artifact, nearest, cause))
    return 0


def find(word: str) -> Artifact:
    """The artifact at a folder, or with that key below results/."""
    folder = Path(word)
    if (folder / MANIFEST).is_file() or folder.name == MANIFEST:
        return open_artifact(folder, verify=False)
    found = sorted(path.parent for path in RESULTS.glob(f"*/*/*/{MANIFEST}") if path.parent.name == folder.name)
    if not found:
        raise UserError(f"{word}: no finished artifact; give a folder with a {MANIFEST}, or a key below {RESULTS}/")
    if len(found) > 1:
        raise UserError(f"{word}: stands for {', '.join(map(str, found))}; give one of these folders")
    return open_artifact(found[0], verify=False)


def siblings(artifact: Artifact) -> list[Artifact]:
    """Finished artifacts of the same dataset, kind and name."""
    own = artifact.folder
    beside = sorted(path.parent for path in own.absolute().parent.glob(f"*/{MANIFEST}"))
    named = [path for path in beside if path.name != own.name and stage_name(path.name) == stage_name(own.name)]
    return [open_artifact(path, verify=False) for path in named]


def _distance(artifact: Artifact, other: Artifact) -> tuple[int, bool, list[int], str]:
    """How far a sibling is: the number of roots, then whether it is younger, then how long ago it finished."""
    finished = other.manifest["finished"]
    recent = [-ord(character) for character in finished]
    return len(list(causes(artifact, other))), finished > artifact.manifest["finished"], recent, other.key


def causes(artifact: Artifact, other: Artifact) -> Iterator[Cause]:
    """Every root of the difference of two artifacts, each once: own parameters first, then those of the inputs.

    An input of another kind or name is a root itself; one of the same name is followed to what differs in it.
    """
    yield from _causes(artifact, other, set())


def _causes(artifact: Artifact, other: Artifact, met: set[tuple[str, str]]) -> Iterator[Cause]:
    """`causes`, skipping pairs that were compared already."""
    if artifact.key == other.key or (artifact.key, other.key) in met:
        return
    met.add((artifact.key, other.key))
    if artifact.manifest["version"] != other.manifest["version"]:
        now, before = artifact.manifest["version"], other.manifest["version"]
        yield Cause(artifact, other, f"the version of {artifact.manifest['kind']}", str(now), str(before))
    own, its = leaves(artifact.params), leaves(other.params)
    for path in [*own, *(path for path in its if path not in own)]:
        if path not in own or path not in its or own[path] != its[path]:
            yield Cause(artifact, other, path, _shown(own, path), _shown(its, path))
    above, beside = open_upstream(artifact), open_upstream(other)
    keys, others = ({role: Path(at).name for role, at in one.upstream.items()} for one in (artifact, other))
    for role in [*keys, *(role for role in others if role not in keys)]:
        mine, theirs = above.get(role), beside.get(role)
        if mine is not None and theirs is not None and _same_name(mine, theirs):
            yield from _causes(mine, theirs, met)
        elif keys.get(role) != others.get(role):
            now, before = _input(keys, above, role), _input(others, beside, role)
            yield Cause(artifact, other, f"its input {role}", now, before)


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
    for path in [*own, *(path for path in its if path not in own)]:
        if path not in own or path not in its or own[path] != its[path]:
            yield f"{path} is {_shown(own, path)}, was {_shown(its, path)}"
    files, others = artifact.manifest["files"], other.manifest["files"]
    differ = [name for name in {**files, **others} if files.get(name) != others.get(name)]
    if differ:
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        yield f"other bytes in {', '.join(differ[:3])}{more}"


def _same_name(one: Artifact, other: Artifact) -> bool:
    """Whether two artifacts are variants of one stage."""
    return one.manifest["kind"] == other.manifest["kind"] and stage_name(one.key) == stage_name(other.key)


def _shown(params: dict[str, Any], path: str) -> str:
    """A parameter's value, or that it is not set."""
    return repr(params[path]) if path in params else "not set"


def explain(artifact: Artifact, other: Artifact, cause: Cause) -> str:
    """One line: what differs, and in which stage above if not in the artifact itself."""
    differs = f"{cause.what} is {cause.now}, was {cause.before}"
    line = f"{artifact.key} differs from {other.key}: "
    if cause.stage.key == artifact.key:
        return line + differs
    return f"{line}{cause.stage.manifest['kind']} {cause.stage.key} differs from {cause.other.key}: {differs}"
