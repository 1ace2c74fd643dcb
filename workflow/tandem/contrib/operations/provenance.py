"""The commands `lineage` and `why`: the stages behind a number of a table or sweep, and why two artifacts differ."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tandem.cluster.progress import format_duration
from tandem.contrib.operations.differences import differences_beside_keys, explain
from tandem.errors import UserError, nearest
from tandem.evaluation.layouts import name_system
from tandem.extras.byte_sizes import format_bytes
from tandem.extras.stage_tree import Node, tree
from tandem.extras.sweep_results import SweepLine, SweepResult, label_point, read_result
from tandem.extras.targets import find_artifact, open_scored
from tandem.report.grids import format_number
from tandem.report.results import (
    Cell,
    FilledRow,
    Table,
    find_view,
    is_sweep,
    list_table_names,
    read_table,
)
from tandem.store.artifact import MANIFEST, Artifact, open_artifact
from tandem.store.lineage import BuiltStage, causes, stage_name, walk

_CHECKSUM_DIGITS = 16  # that are shown to a person
_FILES_SHOWN = 4
_PARAMETER_CHARACTERS = 120


def print_lineage(
    target: str, /, *, as_json: Annotated[bool, Parameter(name="--json")] = False
) -> None:
    """Print the stages above an artifact or a number, each with what made it.

    For a table's number, the scores of each seed are shown: `rocketqav2/table4:"RocketQAv2 (retriever)":RR@10`. If the
    name of a re-ranked row is ambiguous, add its first stage: `"CE w/ DE Neg on BM25"`. A sweep's row is a system at a
    point: `sweeps/lists:"Retriever at rocketqav2.list_size 4":RR@10`. Tables and sweeps of mine.yaml, which are in
    results/mine, are `mine/rocketqav2/table4` and `mine/sweeps/lists`.

    Args:
        target: FOLDER, KEY (below results/), TABLE:ROW[:COLUMN] or sweeps/SWEEP:ROW[:MEASURE].
        as_json: for programs: the target, and `stages` with the whole manifest of each, inputs first.
    """
    resolved = resolve_target(target)
    stages = walk(resolved.artifacts)
    render = render_lineage_json if as_json else render_lineage_text
    print(render(resolved, stages))


def print_difference(artifact: str, other: str | None = None, /) -> None:
    """Print why an artifact differs from another, or from its nearest sibling.

    Both are folders, keys below results/, or rows of tables and sweeps in the form of `lineage`. If a row has several
    seeds, the first is explained, against the nearest of the other row. The nearest sibling has the same dataset, kind
    and name and the fewest differing roots; among equals, one finished before the artifact, then the one finished last.
    """
    this, is_named = resolve_target(artifact).artifacts[0], other is not None
    others = _list_siblings(this) if other is None else resolve_target(other).artifacts
    if not others:
        absent = f"no other {this.kind} named {stage_name(this.key)} is finished beside it"
        print(f"{this.key} has no sibling: {absent}")
        return

    def measure_distance(sibling: Artifact) -> tuple[int, bool, list[int], str]:
        roots = len(list(causes(this, sibling, is_named)))
        finished = sibling.manifest.finished
        # Times are texts: their negated characters sort the latest first.
        latest_first = [-ord(character) for character in finished]
        return roots, finished > this.manifest.finished, latest_first, sibling.key

    near = min(others, key=measure_distance)
    roots = list(causes(this, near, is_named))
    if not roots:
        is_same = this.folder.absolute() == near.folder.absolute()
        lines = [] if is_same else list(differences_beside_keys(this, near))
        print(
            f"{this.key} does not differ from {near.key}{' in what decides its key, but:' if lines else ''}"
        )
        print("".join(f"  {line}\n" for line in lines), end="")
    for line in explain(this, near, roots):
        print(line)


def _list_siblings(this: Artifact) -> list[Artifact]:
    """Return the other artifacts of its dataset, kind and name."""
    own = this.folder.absolute()
    siblings = []
    for manifest in sorted(own.parent.glob(f"*/{MANIFEST}")):
        folder = manifest.parent
        if folder.name != own.name and stage_name(folder.name) == stage_name(own.name):
            siblings.append(open_artifact(folder, verify=False))
    return siblings


@dataclass(frozen=True)
class Target:
    """The meaning of a word on the command line: a label, and its artifacts (for a number, one per seed)."""

    label: str
    artifacts: list[Artifact]


def resolve_target(word: str) -> Target:
    """Return the artifact of a folder or key, or those behind a number.

    A number is written as `TABLE:ROW[:COLUMN]` or `sweeps/SWEEP:ROW[:MEASURE]`.
    """
    name, colon, _ = word.partition(":")
    if not Path(word).is_dir():
        path = find_view(name)
        if path.is_file() or colon:
            if is_sweep(path):
                return _resolve_sweep_row(read_result(path), word)
            finished = list_table_names()
            if not path.is_file() and finished:
                raise UserError(f"{name}: is not a table{nearest(name, finished)}")
            return _resolve_table_row(read_table(path), word)
    artifact = find_artifact(word)
    return Target(f"{artifact.kind} {artifact.key}", [artifact])


def _resolve_table_row(table: Table, word: str) -> Target:
    """Return the scores behind a row of a table, `SYSTEM [on FIRST STAGE]`, or those behind one of its columns."""
    name = word.split(":")[0]
    rows = {name_system((row.system, row.first_stage)): row for row in table.rows}

    def is_row(full: str, text: str) -> bool:
        return text in (full, rows[full].system)

    traceable = [full for full, row in rows.items() if row.lineage]
    full, column = _split_word(word, rows, is_row, traceable)
    row = rows[full]
    if not row.lineage:
        raise UserError(f"{name}: {full} has no run: {row.absent or 'its numbers are quoted'}")

    label, runs = f"{name}: {full}", {scored.run for scored in row.lineage}
    if column:
        cell, heading = _find_cell(row, table.names, column)
        runs &= set(cell.stages)
        value = "not measured" if cell.value is None else format_number(cell.value)
        label += f": {heading} = {value}"
    return Target(label, [open_scored(scored) for scored in row.lineage if scored.run in runs])


def _find_cell(row: FilledRow, headings: list[str], column: str) -> tuple[Cell, str]:
    """Return the cell of a row whose measure or heading is `column`, and its heading."""
    cells = []
    for cell, heading in zip(row.cells, headings, strict=True):
        if column in (cell.measure, heading, heading.split(" (")[0]):
            cells.append((cell, heading))
    if not cells:
        raise UserError(f"{column} is not a column; allowed: {', '.join(headings)}")
    if len(cells) > 1:
        raise UserError(
            f"{column} is in several columns; say {', '.join(heading for _, heading in cells)}"
        )
    return cells[0]


def _resolve_sweep_row(sweep: SweepResult, word: str) -> Target:
    """Return the runs behind a point of a sweep, written as in its table: `BM25 at rocketqav2.list_size 4, seed 1`."""
    rows: dict[str, list[SweepLine]] = {}
    for line in sweep.lines:
        rows.setdefault(f"{line.system} at {label_point(line.point)}", []).append(line)

    def is_row(full: str, text: str) -> bool:
        return text.replace("=", " ") == full.replace("=", " ")

    full, measure = _split_word(word, rows, is_row, list(rows))
    label = f"{word.split(':')[0]}: {full}"
    if measure:
        values = {line.measure: line.value for line in rows[full]}
        if measure not in values:
            raise UserError(f"{measure} is not a measure; allowed: {', '.join(values)}")
        label += f": {measure} = {values[measure]:.2f}"
    return Target(label, [find_artifact(run) for run in sweep.find_runs(rows[full][0])])


def _split_word(
    word: str, rows: Mapping[str, object], matches: Callable[[str, str], bool], traceable: list[str]
) -> tuple[str, str]:
    """Return the full name of a row and the column of `NAME:ROW[:COLUMN]`; any part may be quoted."""
    name, *parts = word.split(":")
    if not parts:
        kind = "sweep" if is_sweep(Path(name)) else "table"
        raise UserError(
            f"{name}: is a {kind}; name a row, {name}:ROW:COLUMN; it has {', '.join(traceable)}"
        )

    # Names may hold colons: the row gets as many parts as possible, first all of them, then all but the last.
    for row_parts in (len(parts), len(parts) - 1):
        written = ":".join(parts[:row_parts]).strip()
        text = _unquote(written)
        column = _unquote(":".join(parts[row_parts:]).strip())
        if written in rows:
            return written, column
        candidates = [row for row in rows if matches(row, written) or matches(row, text)]
        if text in candidates:
            return text, column
        if len(candidates) > 1:
            raise UserError(f"{word}: {text} stands for {', '.join(candidates)}; say which")
        if candidates:
            return candidates[0], column

    text = text if len(parts) > 1 else column
    raise UserError(f"{word}: {name} has no row {text}{nearest(text, rows)}")


def _unquote(text: str) -> str:
    """Return a text without the quotes around it, if it begins and ends with the same one."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text


def render_lineage_json(target: Target, stages: dict[str, BuiltStage]) -> str:
    """Return the lineage for programs: whole manifests, every stage after its inputs."""
    entries = [
        {
            "key": key,
            "folder": str(stage.artifact.folder),
            "content": stage.artifact.manifest.content,
            "manifest": stage.artifact.manifest.model_dump(),
        }
        for key, stage in stages.items()
    ]
    data = {
        "target": target.label,
        "of": [artifact.key for artifact in target.artifacts],
        "stages": entries,
    }
    return json.dumps(data, indent=1, ensure_ascii=False)


def render_lineage_text(target: Target, stages: dict[str, BuiltStage]) -> str:
    """Return the trees for a person; a stage that was described above is only named again."""
    lines = [target.label] if ":" in target.label else []  # an artifact's own line says what it is
    described: set[str] = set()
    for artifact in target.artifacts:
        lines += _draw_node(tree(stages, artifact.key), described, "", "")
    seconds = sum(stage.seconds for stage in stages.values())
    return "\n".join([*lines, f"{len(stages)} stages, {format_duration(seconds)} of computing"])


def _draw_node(node: Node, described: set[str], first: str, rest: str) -> Iterator[str]:
    """Yield a node's lines: `first` precedes its own, `rest` those below; `described` has the keys already drawn."""
    stage = node.stage
    is_described = stage.key in described
    roles = f" (as {', '.join(node.roles)})" if node.roles else ""
    yield f"{first}{stage.kind} {stage.key}{roles}{' … as above' if is_described else ''}"
    if is_described:
        return

    described.add(stage.key)
    bar = "│ " if node.above else "  "
    for line in describe_stage(stage):
        yield f"{rest}{bar}  {line}"
    for position, above in enumerate(node.above):
        is_last = position == len(node.above) - 1
        corner, below = ("└─", "  ") if is_last else ("├─", "│ ")
        yield from _draw_node(above, described, f"{rest}{corner}", f"{rest}{below}")


def describe_stage(stage: BuiltStage) -> Iterator[str]:
    """Yield a few lines that describe how a stage was made."""
    manifest = stage.artifact.manifest
    if stage.params:
        values = (
            f"{path}={_shorten(json.dumps(value, ensure_ascii=False))}"
            for path, value in stage.params
        )
        yield f"params: {', '.join(values)}"
    for role, folder in stage.artifact.upstream.items():
        deleted = "" if role in stage.upstream else ", deleted since"
        yield f"input {role}: {Path(folder).name}, content {manifest.inputs.get(role, 'not recorded')}{deleted}"

    for name, file in list(manifest.files.items())[:_FILES_SHOWN]:
        yield f"file {name}: {format_bytes(file.bytes)}, sha256 {file.sha256[:_CHECKSUM_DIGITS]}"
    if len(manifest.files) > _FILES_SHOWN:
        yield f"… {len(manifest.files)} files, {format_bytes(manifest.bytes)}"

    commit = f"{(manifest.commit or 'unknown')[:12]}{', with changes' if manifest.dirty else ''}"
    yield f"code: version {manifest.version}, modules {manifest.modules}, commit {commit}"

    libraries = (
        ", ".join(f"{name} {version}" for name, version in manifest.libraries.items())
        or "no library of note"
    )
    machine = manifest.machine
    device = f", {manifest.facts['device']}" if "device" in manifest.facts else ""
    yield f"with: {libraries}; on {machine.node}, {machine.cores} cores, Python {machine.python}{device}"

    memory = "" if manifest.peak_memory_mib is None else f", {manifest.peak_memory_mib:,} MiB"
    yield f"took: {format_duration(stage.seconds)}{memory}; finished {manifest.finished}"


def _shorten(text: str) -> str:
    return text if len(text) <= _PARAMETER_CHARACTERS else f"{text[: _PARAMETER_CHARACTERS - 3]}…"
