"""Orders of a layout's rows, tested query by query."""

from collections.abc import Sequence
from dataclasses import replace

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


def fill_orders(
    layout: Layout,
    columns: Sequence[Column],
    positions: Sequence[dict[System, Position]],
    blocks: Sequence[ScoreBlock],
) -> list[FilledOrder]:
    """Return the layout's orders with difference, p and margin by column, p corrected over those that can be tested.

    Left out are those of rows that were not searched in one place: they have no differences query by query.
    """
    pairs = [(order.higher.id, order.lower.id) for order in layout.orders]
    # by block; of shape (3, measures)
    tests: dict[int, dict[tuple[System, System], Floats64]] = {}
    for block in blocks:
        tested = {*block.systems} - block.repeated
        if present := [pair for pair in pairs if {*pair} <= tested]:
            tests[id(block)] = dict(zip(present, compare_pairs(block, present), strict=True))
    cells = [[Cell(column.measure, None)] * len(pairs) for column in columns]
    for column, own, at in zip(columns, cells, positions, strict=True):
        measured: dict[int, Floats64] = {}
        for number, (higher, lower) in enumerate(pairs):
            if higher in at and lower in at and at[higher].block is at[lower].block:
                own_tests = tests.get(id(at[higher].block), {})
                if (higher, lower) not in own_tests:
                    continue
                measured[number] = own_tests[higher, lower][:, at[higher].measure]
        corrected = correct_by_holm(np.array([p for _, p, _ in measured.values()])).tolist()
        for (number, (change, _, margin)), p in zip(measured.items(), corrected, strict=True):
            own[number] = replace(
                own[number],
                change=scale_value(change, column.measure),
                p=round(p, 6),
                margin=scale_value(margin, column.measure),
            )
    orders = [
        FilledOrder(order.claim, name_system(higher), name_system(lower), list(own))
        for order, (higher, lower), own in zip(
            layout.orders, pairs, zip(*cells, strict=True), strict=True
        )
    ]
    return [order for order in orders if any(cell.p is not None for cell in order.cells)]


def compare_pairs(block: ScoreBlock, pairs: Sequence[tuple[System, System]]) -> Floats64:
    """Return first minus second of each pair, p of its test, uncorrected, and half the width of its 95 % interval.

    The shape is (pairs, 3, measures).
    """
    differences = compute_differences(block.values, block.systems, pairs)
    halves = compute_margins(differences, *bootstrap_mean(differences.mean(axis=0)))
    numbers = np.stack([differences.mean(axis=(0, 1)), run_seeded_test(differences), halves])
    return numbers.reshape(3, len(pairs), len(block.measures)).transpose(1, 0, 2)
