"""The best system of a table: the answer at the top of the report's page and at the end of `tandem run`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tandem.evaluation.layouts import Column, Layout, System, name_system
from tandem.evaluation.significance import correct_by_holm, run_seeded_test
from tandem.report.results import BestSystem, FilledRow
from tandem.report.scored import Position, compute_differences, scale_value


def find_best_system(
    layout: Layout, column: Column, positions: dict[System, Position], rows: Sequence[FilledRow]
) -> BestSystem | None:
    """Return the best row of a column, among those scored on the queries and labels of the reference.

    The reference is the first row that is not itself tested against another.

    Args:
        positions: of the rows that have a number in the column, including hidden rows.
        rows: the rows that are shown; the column's cells come first.
    """
    cells = {row.id: row.cells[0] for row in rows if row.cells[0].value is not None}
    if not cells:
        return None
    baselines = {row.id: row.baseline for row in layout.rows if row.id in positions}
    reference = None
    rivals = _list_rivals(cells, positions[next(iter(cells))])
    for row, baseline in baselines.items():
        # A hidden row may be the only row with its queries.
        if baseline is None and (comparable := _list_rivals(cells, positions[row])):
            reference = row
            rivals = comparable
            break

    system = max(rivals, key=lambda row: cells[row].value or 0.0)
    cell = cells[system]
    has_others = any(each.scored_by != cell.scored_by for each in cells.values())
    among = cell.queries if has_others else ""
    best = BestSystem(name_system(system), column.label, cell.value or 0.0, among=among)
    position = positions[system]
    runs = position.block.originals
    if reference is None or runs[reference] == runs[system]:
        return best

    p = cell.p
    if baselines[system] != reference:
        p = _correct_best(position, system, reference, rivals)
    gain = position.mean - positions[reference].mean
    return replace(best, over=name_system(reference), gain=scale_value(gain, column.measure), p=p)


def _list_rivals(rows: Iterable[System], position: Position) -> list[System]:
    """Return the rows that are scored on the same queries and labels as a number."""
    block = position.block
    labels = {
        system: scored[0].labels for system, scored in zip(block.systems, block.scored, strict=True)
    }
    own = labels[block.systems[position.system]]
    return [row for row in rows if labels.get(row) == own]


def _correct_best(
    position: Position, best: System, reference: System, systems: Sequence[System]
) -> float:
    """Return p of the best system against the reference, Holm-corrected over all systems' tests against it."""
    block = position.block
    runs = block.originals
    # A run under two names is one comparison, and the reference's own run is not one.
    others = list(dict.fromkeys(runs[row] for row in systems if runs[row] != runs[reference]))
    pairs = [(other, reference) for other in others]
    differences = compute_differences(block.values, block.systems, pairs)
    p = run_seeded_test(differences).reshape(len(others), len(block.measures))
    corrected = correct_by_holm(p[:, position.measure])
    return round(float(corrected[others.index(runs[best])]), 6)
