"""Rows of a table that have a baseline but no test of their own against it; a note below the table explains them."""

from collections.abc import Sequence

from tandem.evaluation.layouts import Column, Layout, System, name_system
from tandem.report.scored import Position


def list_untested(
    layout: Layout, columns: Sequence[Column], positions: Sequence[dict[System, Position]]
) -> list[str]:
    """Return a line for each row that is not tested against its baseline.

    Either the baseline is scored on other queries (the line names the columns if only some are affected), or the
    baseline is tested against the row: both would be one test.

    Args:
        positions: for each column, those of the rows that have a number in it.
    """
    lines = []
    baselines = {row.id: row.baseline for row in layout.rows if not row.hidden}
    for row in layout.rows:
        if row.hidden or row.baseline is None:
            continue
        pair = f"{name_system(row.id)} is not tested against {name_system(row.baseline)}"
        if baselines.get(row.baseline) == row.id and _is_tested(row.baseline, positions):
            lines.append(f"{pair}: that is the test of the other one")
            continue
        measured = 0
        untested = []
        for column, rows in zip(columns, positions, strict=True):
            if row.id not in rows:
                continue
            measured += 1
            if row.baseline in rows and rows[row.id].block is not rows[row.baseline].block:
                untested.append(column.label)
        if untested:
            where = f" in {', '.join(untested)}" if len(untested) < measured else ""
            lines.append(f"{pair}{where}: other queries are scored")
    return lines


def _is_tested(system: System, positions: Sequence[dict[System, Position]]) -> bool:
    return any(system in rows and system in rows[system].block.p for rows in positions)
