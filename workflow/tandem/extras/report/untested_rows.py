"""Rows of a table that have a baseline and no test against it, which a note below the table explains."""

from collections.abc import Sequence

from tandem.evaluation.layouts import Column, Layout, System, name_system
from tandem.report.scored import Position


def list_untested(
    layout: Layout, columns: Sequence[Column], positions: Sequence[dict[System, Position]]
) -> list[str]:
    """Return a line for each row that is scored by other queries than its baseline, with the columns if only in some.

    Args:
        positions: of each column, those of the rows that have a number in it.
    """
    lines = []
    for row in layout.rows:
        if row.hidden or row.baseline is None:
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
            pair = f"{name_system(row.id)} is not tested against {name_system(row.baseline)}"
            lines.append(f"{pair}{where}: other queries are scored")
    return lines
