"""The command `lineage`: the tree of stages behind an artifact or behind a number of a table or sweep."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tandem.artifact import content
from tandem.cluster.progress import duration
from tandem.data.download import readable
from tandem.errors import UserError
from tandem.provenance.asked import Asked, ask
from tandem.searching import words as command_line
from tandem.store.lineage import Node, Stage, tree, walk

DIGITS = 16  # of a file's checksum, for a person


def main(words: list[str]) -> int:
    """`lineage FOLDER|KEY|TABLE:ROW[:COLUMN] [--json]`: prints the stages above, each with what made it.

    A key is looked for below results/. Of a table's number the scores of each seed are shown:
    `rocketqav2/table4:"RocketQAv2 (retriever)":RR@10`. A re-ranked row is told with its first stage, as
    `"CE w/ DE Neg on BM25"`, where the name alone stands for several. A sweep's row is a system at a point:
    `sweeps/lists:"Retriever at rocketqav2.list_size 4":RR@10`.

    Args:
        words: `--json` for programs: `asked`, and `stages` with the whole manifest of each, inputs first.
    """
    told = command_line.read(words, (), ("--json",))
    if len(told.names) != 1:
        raise UserError(f"lineage: takes one artifact or cell, {len(told.names)} were given")
    asked = ask(told.names[0])
    stages = walk(asked.artifacts)
    print(as_json(asked, stages) if "--json" in told.switches else as_text(asked, stages))
    return 0


def as_json(asked: Asked, stages: dict[str, Stage]) -> str:
    """The lineage for programs: whole manifests, every stage after its inputs."""
    told = [
        {"key": key, "folder": str(one.artifact.folder), "content": content(one.artifact.manifest)}
        | {"manifest": one.artifact.manifest}
        for key, one in stages.items()
    ]
    keys = [artifact.key for artifact in asked.artifacts]
    return json.dumps({"asked": asked.told, "of": keys, "stages": told}, indent=1, ensure_ascii=False)


def as_text(asked: Asked, stages: dict[str, Stage]) -> str:
    """The trees for a person; a stage that was told above is only named again."""
    lines = [asked.told] if ":" in asked.told else []  # an artifact's own line says what it is
    told: set[str] = set()
    for artifact in asked.artifacts:
        lines += _drawn(tree(stages, artifact.key), told, "", "")
    seconds = sum(one.seconds for one in stages.values())
    return "\n".join([*lines, f"{len(stages)} stages, {duration(seconds)} of computing"])


def _drawn(node: Node, told: set[str], first: str, rest: str) -> Iterator[str]:
    """A node's lines: `first` begins its own, `rest` those below; `told` has the keys of those drawn before."""
    stage, again = node.stage, node.stage.key in told
    roles = f" (as {', '.join(node.roles)})" if node.roles else ""
    yield f"{first}{stage.kind} {stage.key}{roles}{' … as above' if again else ''}"
    if again:
        return
    told.add(stage.key)
    bar = "│ " if node.above else "  "
    yield from (f"{rest}{bar}  {line}" for line in told_of(stage))
    for at, one in enumerate(node.above):
        last = at == len(node.above) - 1
        yield from _drawn(one, told, f"{rest}{'└─' if last else '├─'}", f"{rest}{'  ' if last else '│ '}")


def told_of(stage: Stage) -> Iterator[str]:
    """What made a stage, in a few lines."""
    manifest = stage.artifact.manifest
    if stage.params:
        yield "params: " + ", ".join(f"{path}={_short(value)}" for path, value in stage.params)
    inputs: dict[str, str] = manifest.get("inputs", {})
    for role, folder in stage.artifact.upstream.items():
        key = Path(folder).name
        gone = "" if role in stage.upstream else ", deleted since"
        yield f"input {role}: {key}, content {inputs.get(role, 'not recorded')}{gone}"
    files = manifest["files"]
    for name, file in list(files.items())[:4]:
        yield f"file {name}: {readable(file['bytes'])}, sha256 {file['sha256'][:DIGITS]}"
    if len(files) > 4:
        yield f"… {len(files)} files, {readable(sum(file['bytes'] for file in files.values()))}"
    dirty = {True: ", with changes", False: "", None: ""}[manifest.get("dirty")]
    commit = str(manifest.get("commit") or "unknown")[:12]
    yield f"code: version {manifest['version']}, modules {manifest.get('modules')}, commit {commit}{dirty}"
    libraries = ", ".join(f"{name} {version}" for name, version in manifest.get("libraries", {}).items())
    machine = manifest.get("machine", {})
    on = f"{machine.get('node')}, {machine.get('cores')} cores, Python {machine.get('python')}"
    yield f"with: {libraries or 'no library of note'}; on {on}{_device(manifest)}"
    memory = f", {manifest['peak_memory_mib']:,} MiB" if "peak_memory_mib" in manifest else ""
    yield f"took: {duration(stage.seconds)}{memory}; finished {manifest.get('finished')}"


def _device(manifest: dict[str, Any]) -> str:
    """What it computed on, where it says so."""
    return f", {manifest['device']}" if "device" in manifest else ""


def _short(value: Any) -> str:
    """A parameter's value in at most 120 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}…"
