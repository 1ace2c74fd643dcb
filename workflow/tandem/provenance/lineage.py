"""The command `lineage`: the tree of stages behind an artifact or behind a number of a table."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.artifact import Artifact, content, open_artifact
from tandem.data.download import readable
from tandem.errors import UserError
from tandem.planning.schema import nearest
from tandem.progress import duration
from tandem.provenance.found import RESULTS
from tandem.reporting.layout import name as system_name
from tandem.reporting.lineage import Node, Stage, tree, walk
from tandem.reporting.results import Cell, Row, Table, from_json
from tandem.searching import words as command_line
from tandem.why import find

DIGITS = 16  # of a file's checksum, for a person


@dataclass(frozen=True)
class Asked:
    """What a lineage is asked of.

    Attributes:
        told: in words: `rocketqav2/table4: RocketQAv2 (retriever): RR@10 = 40.89`.
        artifacts: whose lineage is shown: of a number, the scores of every seed.
    """

    told: str
    artifacts: list[Artifact]


def main(words: list[str]) -> int:
    """`lineage FOLDER|KEY|TABLE:ROW[:COLUMN] [--json]`: prints the stages above, each with what made it.

    A key is looked for below results/. Of a table's number the scores of each seed are shown:
    `rocketqav2/table4:"RocketQAv2 (retriever)":RR@10`. A re-ranked row is told with its first stage, as
    `"CE w/ DE Neg on BM25"`, where the name alone stands for several.

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


def ask(word: str) -> Asked:
    """The artifact of a folder or key, or those behind a table's cell."""
    table = RESULTS / "tables" / f"{word.split(':')[0]}.json"
    if ":" in word and not Path(word).is_dir():
        return of_cell(from_json(table), word)
    if table.is_file() and not Path(word).is_dir():
        rows = ", ".join(_row_name(row) for row in from_json(table).rows if row.lineage)
        raise UserError(f"{word}: is a table; name a row, {word}:ROW:COLUMN; it has {rows}")
    artifact = find(word)
    return Asked(f"{artifact.manifest['kind']} {artifact.key}", [artifact])


def of_cell(table: Table, word: str) -> Asked:
    """The scores behind `TABLE:ROW` or `TABLE:ROW:COLUMN`; quotes around the parts do not count."""
    named, *rest = word.split(":")
    rows = {_row_name(row): row for row in table.rows}
    for cut in (len(rest), len(rest) - 1):  # names may hold colons: the row's as much as can be
        told, column = _plain(":".join(rest[:cut])), _plain(":".join(rest[cut:]))
        alike = [row for full, row in rows.items() if told in (full, row.system)]
        if len(alike) > 1:
            raise UserError(f"{word}: {told} stands for {', '.join(_row_name(row) for row in alike)}; say which")
        if alike:
            return _asked(table, named, alike[0], column)
    told = _plain(":".join(rest[:-1] or rest))
    raise UserError(f"{word}: {named} has no row {told}{nearest(told, list(rows))}")


def _asked(table: Table, named: str, row: Row, column: str) -> Asked:
    """The scores of a row, of those that a column shows if one is named."""
    if not row.lineage:
        raise UserError(f"{named}: {_row_name(row)} has no run: {row.absent or 'its numbers are quoted'}")
    told, runs = f"{named}: {_row_name(row)}", {one["run"] for one in row.lineage}
    if column:
        cell, label = _cell(table, row, column)
        runs &= set(cell.stages)
        value = "not measured" if cell.value is None else f"{cell.value:.{table.decimals}f}"
        told += f": {label} = {value}"
    return Asked(told, [_scores(one) for one in row.lineage if one["run"] in runs])


def _cell(table: Table, row: Row, column: str) -> tuple[Cell, str]:
    """A row's cell by its measure or by its column's name."""
    found = [
        (cell, label)
        for cell, label in zip(row.cells, table.names, strict=True)
        if column in (cell.measure, label, label.split(" (")[0])
    ]
    if len(found) != 1:
        told = "is in several columns; say" if found else "is no column; allowed:"
        raise UserError(f"{column} {told} {', '.join(label for _, label in found) or ', '.join(table.names)}")
    return found[0]


def _scores(told: dict[str, Any]) -> Artifact:
    """The scores that a row's lineage names: of the run's dataset, else wherever that key is."""
    beside = Path(told["folder"]).parents[1] / "score" / told["scores"]
    return open_artifact(beside, verify=False) if (beside / "stage.json").is_file() else find(told["scores"])


def _row_name(row: Row) -> str:
    """A row's name with its first stage."""
    return system_name((row.system, row.first_stage))


def _plain(text: str) -> str:
    """A name without the quotes that a shell may leave."""
    return text.strip().strip("\"'")


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
    for artifact in asked.artifacts:
        lines += _drawn(tree(stages, artifact.key), "", "")
    seconds = sum(one.seconds for one in stages.values())
    return "\n".join([*lines, f"{len(stages)} stages, {duration(seconds)} of computing"])


def _drawn(node: Node, first: str, rest: str) -> Iterator[str]:
    """A node's lines: `first` begins its own, `rest` those below."""
    roles = f" (as {', '.join(node.roles)})" if node.roles else ""
    again = " … as above" if node.repeated else ""
    yield f"{first}{node.stage.kind} {node.stage.key}{roles}{again}"
    if node.repeated:
        return
    bar = "│ " if node.above else "  "
    yield from (f"{rest}{bar}  {line}" for line in told_of(node.stage))
    for at, one in enumerate(node.above):
        last = at == len(node.above) - 1
        yield from _drawn(one, f"{rest}{'└─' if last else '├─'}", f"{rest}{'  ' if last else '│ '}")


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
