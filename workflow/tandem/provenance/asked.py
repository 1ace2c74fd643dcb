"""What a command is asked about: an artifact by folder or key, a row of a table or sweep, a cell of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.artifact import Artifact, open_artifact
from tandem.errors import UserError, nearest
from tandem.provenance.found import RESULTS, find
from tandem.reporting.layout import name as system_name
from tandem.reporting.results import Cell, Row, Table, from_json
from tandem.reporting.sweep_results import Line, Result, labelled, read

SWEEPS = "sweeps/"  # what a sweep's name begins with, here as below results/


@dataclass(frozen=True)
class Asked:
    """What is asked about.

    Attributes:
        told: in words: `rocketqav2/table4: RocketQAv2 (retriever): RR@10 = 40.89`.
        artifacts: of a number, one for every seed.
    """

    told: str
    artifacts: list[Artifact]


def ask(word: str) -> Asked:
    """The artifact of a folder or key, or those behind `TABLE:ROW[:COLUMN]` or `sweeps/SWEEP:ROW[:MEASURE]`.

    Raises:
        UserError: there is none; what there is instead.
    """
    named, colon, _ = word.partition(":")
    if not Path(word).is_dir():
        path = RESULTS / (f"{named}.json" if named.startswith(SWEEPS) else f"tables/{named}.json")
        if colon or path.is_file():
            return of_sweep(read(path), word) if named.startswith(SWEEPS) else of_table(from_json(path), word)
    artifact = find(word)
    return Asked(f"{artifact.manifest['kind']} {artifact.key}", [artifact])


def of_table(table: Table, word: str) -> Asked:
    """The scores behind a row of a table, of those that a column shows if one is named.

    A row that is re-ranked is `SYSTEM on FIRST STAGE`; the system alone where it stands for one row.
    """
    rows = {system_name((row.system, row.first_stage)): row for row in table.rows}
    shown = [name for name, row in rows.items() if row.lineage]
    full, column = _parts(word, rows, lambda name, told: told in (name, rows[name].system), shown)
    row = rows[full]
    if not row.lineage:
        raise UserError(f"{word.split(':')[0]}: {full} has no run: {row.absent or 'its numbers are quoted'}")
    told, runs = f"{word.split(':')[0]}: {full}", {one["run"] for one in row.lineage}
    if column:
        cell, label = _cell(table, row, column)
        runs &= set(cell.stages)
        value = "not measured" if cell.value is None else f"{cell.value:.{table.decimals}f}"
        told += f": {label} = {value}"
    return Asked(told, [_scores(one) for one in row.lineage if one["run"] in runs])


def of_sweep(sweep: Result, word: str) -> Asked:
    """The runs behind a system at a point of a sweep: `SYSTEM at rocketqav2.list_size 4, seed 1`.

    The point is told as the sweep's table has it, with spaces or `=` between a path and its value.
    """
    rows: dict[str, list[Line]] = {}
    for line in sweep.lines:
        rows.setdefault(f"{line.system} at {labelled(line.point)}", []).append(line)
    full, measure = _parts(word, rows, lambda name, told: told.replace("=", " ") == name.replace("=", " "), list(rows))
    told = f"{word.split(':')[0]}: {full}"
    if measure:
        found = [line for line in rows[full] if line.measure == measure]
        if not found:
            raise UserError(f"{measure} is no measure; allowed: {', '.join(line.measure for line in rows[full])}")
        told += f": {measure} = {found[0].value:.2f}"
    return Asked(told, [find(key) for key in rows[full][0].stages])


def _parts(
    word: str, rows: Mapping[str, object], fits: Callable[[str, str], bool], shown: list[str]
) -> tuple[str, str]:
    """The full name of a row and the column of `NAME:ROW[:COLUMN]`; quotes around the parts do not count.

    Args:
        word: as it was told.
        rows: by their full names.
        fits: whether a row of a full name may be told so.
        shown: rows that can be asked about.
    Raises:
        UserError: no row, several, or none named.
    """
    named, *rest = word.split(":")
    if not rest:
        what = "sweep" if named.startswith(SWEEPS) else "table"
        raise UserError(f"{named}: is a {what}; name a row, {named}:ROW:COLUMN; it has {', '.join(shown)}")
    for cut in (len(rest), len(rest) - 1):  # names may hold colons: the row's as much as can be
        told, column = _plain(":".join(rest[:cut])), _plain(":".join(rest[cut:]))
        alike = [name for name in rows if fits(name, told)]
        if len(alike) > 1 and told not in alike:
            raise UserError(f"{word}: {told} stands for {', '.join(alike)}; say which")
        if alike:
            return told if told in alike else alike[0], column
    told = _plain(":".join(rest[:-1] or rest))
    raise UserError(f"{word}: {named} has no row {told}{nearest(told, list(rows))}")


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


def _plain(text: str) -> str:
    """A name without the quotes that a shell may leave."""
    return text.strip().strip("\"'")
