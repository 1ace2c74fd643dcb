"""The commands `lineage` and `why`: the stages behind a number of a table or sweep, and why two artifacts differ."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tandem.cluster.progress import format_duration
from tandem.data.fetch import format_bytes
from tandem.errors import UserError, nearest
from tandem.evaluation.layouts import name_system
from tandem.extras.operations.targets import find
from tandem.extras.sweeps import Line, Result, label_point, read_result
from tandem.report.results import Lineage, Table, find_view, is_sweep, list_table_names, read_table
from tandem.store.artifact import MANIFEST, Artifact, open_artifact
from tandem.store.lineage import BuiltStage, Node, causes, differences_beside_keys, explain, stage_name, tree, walk

DIGITS = 16  # of a file's checksum, for a person


def lineage(target: str, /, *, as_json: Annotated[bool, Parameter(name="--json")] = False) -> None:
    """Print the stages above an artifact or a number, each with what made it.

    For a table's number the scores of each seed are shown: `rocketqav2/table4:"RocketQAv2 (retriever)":RR@10`. A
    re-ranked row is named with its first stage, as `"CE w/ DE Neg on BM25"`, where the name alone is ambiguous. A
    sweep's row is a system at a point: `sweeps/lists:"Retriever at rocketqav2.list_size 4":RR@10`. Tables and sweeps of
    mine.yaml, which are in results/mine, are `mine/rocketqav2/table4` and `mine/sweeps/lists`.

    Args:
        target: FOLDER, KEY (below results/), TABLE:ROW[:COLUMN] or sweeps/SWEEP:ROW[:MEASURE].
        as_json: for programs: the target, and `stages` with the whole manifest of each, inputs first.
    """
    resolved = resolve(target)
    stages = walk(resolved.artifacts)
    print(lineage_json(resolved, stages) if as_json else lineage_text(resolved, stages))


def why(artifact: str, other: str | None = None, /) -> None:
    """Print why an artifact differs from another, or from its nearest sibling.

    Both are folders, keys below results/, or rows of tables and sweeps as `lineage` takes them: of several seeds the
    first is explained, against the other row's nearest. The nearest sibling has the same dataset, kind and name and the
    fewest differing roots; among equals, one finished before the artifact, then the one finished last.
    """
    this, renamed = resolve(artifact).artifacts[0], other is not None
    own = this.folder.absolute()
    if other is None:
        beside = (path.parent for path in sorted(own.parent.glob(f"*/{MANIFEST}")) if path.parent.name != own.name)
        others = [open_artifact(at, verify=False) for at in beside if stage_name(at.name) == stage_name(own.name)]
    else:
        others = resolve(other).artifacts
    if not others:
        absent = f"no other {this.kind} named {stage_name(this.key)} is finished beside it"
        print(f"{this.key} has no sibling: {absent}")
        return

    def distance(sibling: Artifact) -> tuple[int, bool, list[int], str]:
        finished = sibling.manifest.finished
        recent = [-ord(character) for character in finished]
        return len(list(causes(this, sibling, renamed))), finished > this.manifest.finished, recent, sibling.key

    near = min(others, key=distance)
    roots = list(causes(this, near, renamed))
    if not roots:
        lines = list(differences_beside_keys(this, near)) if own != near.folder.absolute() else []
        print(f"{this.key} does not differ from {near.key}{' in what decides its key, but:' if lines else ''}")
        print("".join(f"  {line}\n" for line in lines), end="")
    for line in explain(this, near, roots):
        print(line)


@dataclass(frozen=True)
class Target:
    """What a word of the command line stands for: a label, and its artifacts (for a number, one per seed)."""

    label: str
    artifacts: list[Artifact]


def resolve(word: str) -> Target:
    """The artifact of a folder or key, or those behind `TABLE:ROW[:COLUMN]` or `sweeps/SWEEP:ROW[:MEASURE]`."""
    name, colon, _ = word.partition(":")
    if not Path(word).is_dir():
        path = find_view(name)
        if colon and not path.is_file() and not is_sweep(path) and (finished := list_table_names()):
            raise UserError(f"{name}: is not a table{nearest(name, finished)}")
        if colon or path.is_file():
            return _of_sweep(read_result(path), word) if is_sweep(path) else _of_table(read_table(path), word)
    artifact = find(word)
    return Target(f"{artifact.kind} {artifact.key}", [artifact])


def _of_table(table: Table, word: str) -> Target:
    """The scores behind a row of a table, `SYSTEM [on FIRST STAGE]`, or those that one of its columns shows."""
    name = word.split(":")[0]
    rows = {name_system((row.system, row.first_stage)): row for row in table.rows}
    traceable = [name for name, row in rows.items() if row.lineage]
    full, column = _parts(word, rows, lambda name, text: text in (name, rows[name].system), traceable)
    row = rows[full]
    if not row.lineage:
        raise UserError(f"{name}: {full} has no run: {row.absent or 'its numbers are quoted'}")
    label, runs = f"{name}: {full}", {scored.run for scored in row.lineage}
    if column:
        named = zip(row.cells, table.names, strict=True)
        cells = [(cell, text) for cell, text in named if column in (cell.measure, text, text.split(" (")[0])]
        if len(cells) != 1:
            problem = "is in several columns; say" if cells else "is not a column; allowed:"
            raise UserError(f"{column} {problem} {', '.join(text for _, text in cells) or ', '.join(table.names)}")
        cell, text = cells[0]
        runs &= set(cell.stages)
        label += f": {text} = " + ("not measured" if cell.value is None else f"{cell.value:.{table.decimals}f}")
    return Target(label, [open_scored(scored) for scored in row.lineage if scored.run in runs])


def _of_sweep(sweep: Result, word: str) -> Target:
    """The runs behind a point of a sweep, written as in its table: `SYSTEM at rocketqav2.list_size 4, seed 1`."""
    rows: dict[str, list[Line]] = {}
    for line in sweep.lines:
        rows.setdefault(f"{line.system} at {label_point(line.point)}", []).append(line)
    full, measure = _parts(word, rows, lambda name, text: text.replace("=", " ") == name.replace("=", " "), list(rows))
    label = f"{word.split(':')[0]}: {full}"
    if measure:
        value = next((line.value for line in rows[full] if line.measure == measure), None)
        if value is None:
            raise UserError(f"{measure} is not a measure; allowed: {', '.join(line.measure for line in rows[full])}")
        label += f": {measure} = {value:.2f}"
    return Target(label, [find(key) for key in rows[full][0].stages])


def _parts(
    word: str, rows: Mapping[str, object], matches: Callable[[str, str], bool], traceable: list[str]
) -> tuple[str, str]:
    """The full name of a row and the column of `NAME:ROW[:COLUMN]`; quotes around the parts do not count."""
    name, *rest = word.split(":")
    if not rest:
        what = "sweep" if is_sweep(Path(name)) else "table"
        raise UserError(f"{name}: is a {what}; name a row, {name}:ROW:COLUMN; it has {', '.join(traceable)}")
    for cut in (len(rest), len(rest) - 1):  # names may hold colons: the row gets as much as possible
        text, column = (":".join(part).strip().strip("\"'") for part in (rest[:cut], rest[cut:]))
        candidates = [row for row in rows if matches(row, text)]
        if len(candidates) > 1 and text not in candidates:
            raise UserError(f"{word}: {text} stands for {', '.join(candidates)}; say which")
        if candidates:
            return text if text in candidates else candidates[0], column
    text = text if len(rest) > 1 else column
    raise UserError(f"{word}: {name} has no row {text}{nearest(text, rows)}")


def open_scored(scored: Lineage) -> Artifact:
    """The score artifact that a row's lineage names: that of the run's dataset, else any with the key."""
    beside = Path(scored.folder).parents[1] / "score" / scored.scores
    return open_artifact(beside, verify=False) if (beside / MANIFEST).is_file() else find(scored.scores)


def lineage_json(target: Target, stages: dict[str, BuiltStage]) -> str:
    """The lineage for programs: whole manifests, every stage after its inputs."""
    entries = [
        {"key": key, "folder": str(stage.artifact.folder), "content": stage.artifact.manifest.content}
        | {"manifest": stage.artifact.manifest.model_dump()}
        for key, stage in stages.items()
    ]
    data = {"target": target.label, "of": [artifact.key for artifact in target.artifacts], "stages": entries}
    return json.dumps(data, indent=1, ensure_ascii=False)


def lineage_text(target: Target, stages: dict[str, BuiltStage]) -> str:
    """The trees for a person; a stage that was described above is only named again."""
    lines = [target.label] if ":" in target.label else []  # an artifact's own line says what it is
    described: set[str] = set()
    for artifact in target.artifacts:
        lines += _drawn(tree(stages, artifact.key), described, "", "")
    seconds = sum(stage.seconds for stage in stages.values())
    return "\n".join([*lines, f"{len(stages)} stages, {format_duration(seconds)} of computing"])


def _drawn(node: Node, described: set[str], first: str, rest: str) -> Iterator[str]:
    """A node's lines: `first` begins its own, `rest` those below; `described` has the keys drawn before."""
    stage, again = node.stage, node.stage.key in described
    roles = f" (as {', '.join(node.roles)})" if node.roles else ""
    yield f"{first}{stage.kind} {stage.key}{roles}{' … as above' if again else ''}"
    if again:
        return
    described.add(stage.key)
    bar = "│ " if node.above else "  "
    yield from (f"{rest}{bar}  {line}" for line in describe(stage))
    for position, above in enumerate(node.above):
        last = position == len(node.above) - 1
        yield from _drawn(above, described, f"{rest}{'└─' if last else '├─'}", f"{rest}{'  ' if last else '│ '}")


def describe(stage: BuiltStage) -> Iterator[str]:
    """Describe in a few lines how a stage was made."""
    manifest = stage.artifact.manifest
    if stage.params:
        values = {path: json.dumps(value, ensure_ascii=False) for path, value in stage.params}
        texts = (f"{path}={text if len(text) <= 120 else f'{text[:117]}…'}" for path, text in values.items())
        yield f"params: {', '.join(texts)}"
    for role, folder in stage.artifact.upstream.items():
        gone = "" if role in stage.upstream else ", deleted since"
        yield f"input {role}: {Path(folder).name}, content {manifest.inputs.get(role, 'not recorded')}{gone}"
    for name, file in list(manifest.files.items())[:4]:
        yield f"file {name}: {format_bytes(file.bytes)}, sha256 {file.sha256[:DIGITS]}"
    if len(manifest.files) > 4:
        yield f"… {len(manifest.files)} files, {format_bytes(manifest.bytes)}"
    commit = f"{(manifest.commit or 'unknown')[:12]}{', with changes' if manifest.dirty else ''}"
    yield f"code: version {manifest.version}, modules {manifest.modules}, commit {commit}"
    libraries = ", ".join(f"{name} {version}" for name, version in manifest.libraries.items()) or "no library of note"
    machine, device = manifest.machine, f", {manifest.facts['device']}" if "device" in manifest.facts else ""
    yield f"with: {libraries}; on {machine.node}, {machine.cores} cores, Python {machine.python}{device}"
    memory = "" if manifest.peak_memory_mib is None else f", {manifest.peak_memory_mib:,} MiB"
    yield f"took: {format_duration(stage.seconds)}{memory}; finished {manifest.finished}"
