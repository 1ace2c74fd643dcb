"""Orders of two rows that papers report, `distilled > dense`: tested on a table's scores, and shown below it."""

from collections.abc import Sequence

import numpy as np

from tandem.evaluation.layouts import Layout, System, system_name
from tandem.evaluation.measures import Floats64
from tandem.evaluation.printed import Column
from tandem.evaluation.significance import holm
from tandem.report.formats import conclusion, p_text, signed
from tandem.report.page import Grid
from tandem.report.results import Cell, Order, Table, percent
from tandem.report.scored import Block, Position

NOTE = (
    "p: two-sided, Holm-corrected over the orders of a measure, whatever the rows' baselines are; "
    "in brackets half of the difference's 95 % interval."
)


Pair = tuple[System, System]
Place = tuple[str, str, str]  # of a block
Tests = dict[tuple[Place, Pair], Floats64]  # difference, p and margin, shape (3, measures)


def fill_orders(
    layout: Layout, columns: Sequence[Column], positions: Sequence[dict[System, Position]], blocks: Sequence[Block]
) -> list[Order]:
    """The layout's orders with difference, p and margin by column.

    Left out are those of rows that were not searched in one place: they have no differences query by query.
    """
    pairs = [(order.higher.id, order.lower.id) for order in layout.orders]
    tests: Tests = {}
    for block in blocks:
        if present := [pair for pair in pairs if {*pair} <= {*block.systems}]:
            numbers = block.compare(present).transpose(1, 0, 2)
            tests |= {(block.place, pair): own for pair, own in zip(present, numbers, strict=True)}
    cells = [_cells(column, pairs, own, tests) for column, own in zip(columns, positions, strict=True)]
    orders = [
        Order(order.claim, system_name(higher), system_name(lower), [column[at] for column in cells])
        for at, (order, (higher, lower)) in enumerate(zip(layout.orders, pairs, strict=True))
    ]
    return [order for order in orders if any(cell.p is not None for cell in order.cells)]


def _cells(column: Column, pairs: Sequence[Pair], positions: dict[System, Position], tests: Tests) -> list[Cell]:
    """A column's cell for each pair; p is corrected over those that can be tested."""
    measured: dict[int, Floats64] = {}
    for at, pair in enumerate(pairs):
        higher, lower = (positions.get(system) for system in pair)
        if higher and lower and higher.block is lower.block:
            measured[at] = tests[higher.block.place, pair][:, higher.measure]
    corrected = holm(np.array([p for _, p, _ in measured.values()])).tolist()
    cells = [Cell(column.measure, None)] * len(pairs)
    for (at, (change, _, margin)), p in zip(measured.items(), corrected, strict=True):
        cells[at] = Cell(column.measure, None, change=percent(change), p=round(p, 6), margin=percent(margin))
    return cells


def orders_grid(table: Table) -> Grid | None:
    """A line for each order: whether it holds, by measure; None for a table without any."""
    if not table.orders:
        return None
    rows = [[order.claim, order.higher, order.lower, *map(_text, order.cells)] for order in table.orders]
    head = ["order", "higher", "lower", *table.names]
    return Grid(f"{table.heading}: orders", head, rows, align="l" * len(head), notes=[NOTE])


def _text(cell: Cell) -> str:
    """`holds: +3.38, p = 0.003`, `no difference shown (±2.05): −0.40, p = 1.000`; a dash without a test."""
    if not (shown := conclusion(cell)):
        return "–"
    words = {"above": "holds", "below": "the other way round"}.get(shown, shown)
    return f"{words}: {signed(cell.change)}, {p_text(cell.p)}"
