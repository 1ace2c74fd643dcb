"""Test the orders of a layout's rows, query by query."""

from collections.abc import Sequence

import numpy as np

from tandem.data.columns import Floats64
from tandem.evaluation.layouts import Column, Layout, System, name_system
from tandem.evaluation.significance import (
    bootstrap_mean,
    compute_margins,
    correct_by_holm,
    run_seeded_test,
)
from tandem.report.results import Cell, FilledOrder
from tandem.report.scored import Position, ScoreBlock, compute_differences, scale_value

RowPair = tuple[System, System]


def fill_orders(
    layout: Layout, columns: Sequence[Column], positions: Sequence[dict[System, Position]]
) -> tuple[list[FilledOrder], list[str]]:
    """Return the layout's orders with difference, p and margin by column, and a note on those that cannot be tested.

    p is corrected over the tested pairs of runs. Orders of the same two runs are one test, whatever the runs' names are
    and whichever of them should be higher.

    Args:
        positions: for each column, the positions of the rows that have a number in it.
    """
    pairs = [(order.higher.id, order.lower.id) for order in layout.orders]
    compared = [[find_runs(pair, rows) for pair in pairs] for rows in positions]
    blocks = {id(at.block): at.block for rows in positions for at in rows.values()}
    pairs_by_block: dict[int, dict[RowPair, None]] = {key: {} for key in blocks}
    for rows, runs_of_orders in zip(positions, compared, strict=True):
        for runs in filter(None, runs_of_orders):
            pairs_by_block[id(rows[runs[0]].block)][runs] = None
    tests = {
        key: dict(zip(own, compare_pairs(blocks[key], [*own]), strict=True))
        for key, own in pairs_by_block.items()
        if own
    }

    cells = []
    for column, rows, runs_of_orders in zip(columns, positions, compared, strict=True):
        measured: dict[RowPair, Floats64] = {}
        for runs in filter(None, runs_of_orders):
            block, _, measure = rows[runs[0]]
            measured[runs] = tests[id(block)][runs][:, measure]
        by_runs = _correct_column(column, measured)
        untested = Cell(column.measure, None)
        cells.append([by_runs[runs] if runs else untested for runs in runs_of_orders])

    orders = []
    untested_orders = []
    for order, pair, own in zip(layout.orders, pairs, zip(*cells, strict=True), strict=True):
        if any(cell.p is not None for cell in own):
            names = name_system(pair[0]), name_system(pair[1])
            orders.append(FilledOrder(order.claim, *names, list(own)))
        else:
            untested_orders.append(f"{order.claim} ({explain_untested(pair, positions)})")
    notes = [f"Not tested: {'; '.join(untested_orders)}"] if untested_orders else []
    return orders, notes


def find_runs(pair: RowPair, positions: dict[System, Position]) -> RowPair | None:
    """Return the runs of two rows in a column, each named by the first row with this run; None if not comparable.

    Two runs are comparable if they are different and were scored on the same queries.
    """
    higher, lower = map(positions.get, pair)
    if higher is None or lower is None or higher.block is not lower.block:
        return None
    originals = higher.block.originals
    runs = originals[pair[0]], originals[pair[1]]
    return runs if runs[0] != runs[1] else None


def explain_untested(pair: RowPair, positions: Sequence[dict[System, Position]]) -> str:
    """Return why no column can compare two rows: `DE has no scores`, `other queries are scored`."""
    for system in pair:
        if not any(system in rows for rows in positions):
            return f"{name_system(system)} has no scores"
    together = [rows for rows in positions if pair[0] in rows and pair[1] in rows]
    if not together:
        return "no column has both"
    if any(rows[pair[0]].block is rows[pair[1]].block for rows in together):
        return f"{name_system(pair[0])} and {name_system(pair[1])} are the same run"
    return "other queries are scored"


def _correct_column(column: Column, measured: dict[RowPair, Floats64]) -> dict[RowPair, Cell]:
    """Return the cells of the tests of a column, with p corrected over these tests."""
    tests = {frozenset(runs): p for runs, (_, p, _) in measured.items()}
    corrected = correct_by_holm(np.array([*tests.values()])).tolist()
    p_of = dict(zip(tests, corrected, strict=True))
    cells = {}
    for runs, (change, _, margin) in measured.items():
        cells[runs] = Cell(
            column.measure,
            None,
            change=scale_value(change, column.measure),
            p=round(p_of[frozenset(runs)], 6),
            margin=scale_value(margin, column.measure),
        )
    return cells


def compare_pairs(block: ScoreBlock, pairs: Sequence[tuple[System, System]]) -> Floats64:
    """Return for each pair first minus second, the uncorrected p of its test, and half the width of its 95 % interval.

    The shape is (pairs, 3, measures).
    """
    differences = compute_differences(block.values, block.systems, pairs)
    halves = compute_margins(differences, *bootstrap_mean(differences.mean(axis=0)))
    numbers = np.stack([differences.mean(axis=(0, 1)), run_seeded_test(differences), halves])
    return numbers.reshape(3, len(pairs), len(block.measures)).transpose(1, 0, 2)
