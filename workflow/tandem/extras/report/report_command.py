"""The command `report`: the page with the sections of all extras, or two configurations' tables side by side."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np

from tandem.data.columns import Floats64
from tandem.errors import UserError, nearest
from tandem.evaluation.layouts import PlannedRow, name_system
from tandem.evaluation.scores import read_aligned
from tandem.evaluation.significance import correct_by_holm, run_seeded_test
from tandem.extras.report.report_page import write_report
from tandem.extras.report.sections import Addition, adds_to_report
from tandem.extras.targets import CONFIGURATION_SUFFIXES, open_scored
from tandem.plan.views import views_folder
from tandem.report.grids import (
    PageTable,
    align_text,
    describe_unit,
    format_difference,
    format_number,
    format_p,
    mark,
)
from tandem.report.results import Cell, FilledRow, Table, read_table
from tandem.report.scored import warn_of_few_seeds
from tandem.report.table_commands import JSON, CsvFiles
from tandem.stages.base import Json
from tandem.store.artifact import Artifact

_LEGEND = (
    "{unit}; Δ is {b} minus {a}. ▲ significantly better, ▼ significantly worse: p < 0.05 in a paired "
    "two-sided test, over queries and as many seeds as both have; Holm-corrected over the rows per measure. "
    "No p: the same run, or other queries."
)


def report(
    *,
    compare: tuple[str, str] | None = None,
    tables: CsvFiles = (),
    rows: Annotated[tuple[PlannedRow, ...], JSON] = (),
    out: Path = Path("results/report.html"),
    sweeps: CsvFiles = (),
    added: Annotated[Json | None, JSON] = None,
) -> None:
    """Write the report's page, as the rule `report` does; or compare two configurations.

    Args:
        compare: print the tables of two configurations side by side instead: `--compare config mine`.
        tables: files that `tandem table` wrote.
        rows: the systems that are compared, all scored on one dataset and split: a JSON list of rows of a table's plan.
        out: the page.
        sweeps: files that `tandem sweep` wrote.
        added: what packages add, by their names: a JSON object in the form of the plan.
    """
    if compare:
        print("\n\n".join(map(align_text, compare_configurations(*compare))))
        return
    parts = {"sweeps": list(map(str, sweeps))} if sweeps else {}
    additions = _add_parts({**parts, **(added or {})})
    write_report([read_table(table.with_suffix(".json")) for table in tables], rows, out, additions)


def _add_parts(added: Json) -> list[Addition]:
    """Return what packages add to the report, in the order of their names."""
    for name in added:
        if name not in adds_to_report:
            raise UserError(
                f"--added: {name} adds nothing to the report{nearest(name, list(adds_to_report))}"
            )
    return [adds_to_report[name](added[name]) for name in sorted(added)]


def compare_configurations(a: str, b: str) -> list[PageTable]:
    """Return a grid for each table that both configurations have made: `mine`, `mine.yaml`, `mine+k1`, `config`.

    A configuration without tables, or two configurations without a common table, raise a `UserError`.
    """
    folders = [Path(views_folder(list_configuration_files(name)), "tables") for name in (a, b)]
    names = [
        {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.json")}
        for folder in folders
    ]
    for folder, own in zip(folders, names, strict=True):
        if not own:
            raise UserError(f"--compare: {folder} has no tables; `tandem run` makes them")
    if not (both := sorted(names[0] & names[1])):
        lists = (
            f"{name} has {', '.join(sorted(own))}" for name, own in zip((a, b), names, strict=True)
        )
        raise UserError(f"--compare: {a} and {b} have no table in common: {', '.join(lists)}")
    first, second = ([read_table(folder / f"{name}.json") for name in both] for folder in folders)
    return [compare_tables(*tables, a, b) for tables in zip(first, second, strict=True)]


def list_configuration_files(name: str) -> list[Path]:
    """Return the files behind a configuration's name: `mine+k1.5` → mine.yaml, k1.5.yaml; or the file `a+b.yaml`."""
    if Path(name).is_file():
        return [Path(name)]
    return [
        Path(part if part.endswith(CONFIGURATION_SUFFIXES) else f"{part}.yaml")
        for part in name.split("+")
    ]


def compare_tables(first: Table, second: Table, a: str, b: str) -> PageTable:
    """Return the rows and columns that two tables share: both values, their difference, p."""
    others = {row.id: row for row in second.rows}
    pairs = [(row, others[row.id]) for row in first.rows if row.id in others]
    lines = [[row.system, row.first_stage or "–"] for row, _ in pairs]
    head = ["System", "re-ranks"]
    is_tested = False
    # A table from a version that also multiplied gains and counts by 100 has another unit.
    units = [
        [(column.label, column.is_percent) for column in table.columns] for table in (first, second)
    ]
    shared = [label for label, is_percent in units[0] if (label, is_percent) in units[1]]
    for label in shared:
        head += [f"{label} {a}", b, "Δ", "p"]
        column, other_column = first.names.index(label), second.names.index(label)
        cells = [(row.cells[column], other.cells[other_column]) for row, other in pairs]
        tests = _test_differences(pairs, cells)
        is_tested = is_tested or any(p is not None for p in tests)
        for line, (cell, other_cell), p in zip(lines, cells, tests, strict=True):
            difference = "–"
            if cell.value is not None and other_cell.value is not None:
                change = other_cell.value - cell.value
                difference = f"{format_difference(change)} {mark(change, p) or ' '}"
            line += [
                format_number(cell.value),
                format_number(other_cell.value),
                difference,
                format_p(p),
            ]

    not_percent = [label for label in first.not_percent if label in shared]
    notes = [_LEGEND.format(unit=describe_unit(not_percent, len(shared)), a=a, b=b)]
    notes += _warn_of_other_data(pairs, a, b)
    if is_tested:
        by_system: dict[object, list[Artifact]] = {}
        for number, row in enumerate(chain.from_iterable(pairs)):
            for scored in row.lineage:
                place = (number, scored.column, scored.dataset, scored.split)
                by_system.setdefault(place, []).append(open_scored(scored))
        notes += [f"Warning: {line}." for line in warn_of_few_seeds(by_system.values())]
    for name, own, rest in ((a, first, second), (b, second, first)):
        known = {row.id for row in rest.rows}
        only = [name_system(row.id) for row in own.rows if row.id not in known]
        if only:
            notes.append(f"Only in {name}: {', '.join(only)}.")
    return PageTable(first.heading, head, lines, align="ll" + "r" * (len(head) - 2), notes=notes)


def _warn_of_other_data(pairs: Sequence[tuple[FilledRow, FilledRow]], a: str, b: str) -> list[str]:
    """Return a warning if what two rows are scored on has the same name, but other passages, queries or labels."""
    others = set[str]()
    for pair in pairs:
        # column, dataset and split → contents of the dataset and of any corrected labels
        read: list[dict[tuple[str, str, str], set[object]]] = [{}, {}]
        for row, contents in zip(pair, read, strict=True):
            for scored in row.lineage:
                inputs = open_scored(scored).manifest.inputs
                place = (scored.column, scored.dataset, scored.split)
                contents.setdefault(place, set()).add((inputs.get("dataset"), inputs.get("labels")))
        shared = read[0].keys() & read[1].keys()
        others |= {" ".join(place[1:]) for place in shared if read[0][place] != read[1][place]}
    if not others:
        return []
    problem = f"{a} and {b} have other passages, queries or labels of {', '.join(sorted(others))}"
    return [f"Warning: {problem}; a difference may come from these."]


def _test_differences(
    pairs: Sequence[tuple[FilledRow, FilledRow]], cells: Sequence[tuple[Cell, Cell]]
) -> list[float | None]:
    """Return p of each row's difference in one column, corrected over the rows; None if there is nothing to test."""
    differences = [
        _subtract_runs(*rows, *column) for rows, column in zip(pairs, cells, strict=True)
    ]
    raw = [
        run_seeded_test(difference[..., None])[0]
        for difference in differences
        if difference is not None
    ]
    corrected = iter(correct_by_holm(np.array(raw)).tolist())
    return [None if difference is None else next(corrected) for difference in differences]


def _subtract_runs(row: FilledRow, other: FilledRow, cell: Cell, theirs: Cell) -> Floats64 | None:
    """Return the second run minus the first, shape (seeds, queries); None if they cannot be compared.

    A run with one seed is compared with every seed of the other. Of two unequal numbers of several seeds, as many count
    as both have, beginning with seeds that both share. A system that no seed affects is one run, whatever their number.
    """
    is_same_run = set(cell.stages) == set(theirs.stages)
    if is_same_run or (cell.dataset, cell.split) != (theirs.dataset, theirs.split):
        return None
    values = []
    for shown, runs in ((row, cell.stages), (other, theirs.stages)):
        # where one dataset represents several of the table, the row has the same run in columns of each
        own = {(scored.run, scored.seed): scored for scored in shown.lineage if scored.run in runs}
        if not own:
            return None
        queries, by_seed = read_aligned(list(map(open_scored, own.values())), [cell.measure])
        seeds = [scored.seed for scored in own.values()]
        values.append((queries, by_seed[:, :, 0], seeds))
    (queries, before, seeds), (others, after, other_seeds) = values
    if queries != others:
        return None
    if 1 not in (len(before), len(after)):
        shared = [seed for seed in seeds if seed in other_seeds]
        count = min(len(before), len(after))
        before = before[_put_first(shared, seeds)][:count]
        after = after[_put_first(shared, other_seeds)][:count]
    return after - before


def _put_first(shared: list[int], seeds: list[int]) -> list[int]:
    """Return the positions of seeds; those of shared seeds come first, in the order of `shared`."""
    return sorted(
        range(len(seeds)),
        key=lambda at: shared.index(seeds[at]) if seeds[at] in shared else len(shared),
    )
