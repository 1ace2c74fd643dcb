"""How far two judges give the same labels to the same pairs: the share of equal labels, and Cohen's kappa."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from pydantic import BaseModel


class Agreement(BaseModel):
    """Labels of the same pairs by two judges, such as people and a model."""

    # number of pairs by the first judge's label (rows) and the second's (columns), from 0
    table: list[list[int]]
    pairs: int
    percent: float | None  # percent of pairs with the same label; None without a pair
    kappa: float | None  # see `compute_kappa`


def measure_agreement(labels: Iterable[tuple[int, int]], count: int) -> Agreement:
    """Measure the agreement of (first judge's, second's) labels, each from 0 to `count` - 1."""
    table = np.zeros((count, count), np.int64)
    for first, second in labels:
        table[int(first), int(second)] += 1
    pairs, kappa = int(table.sum()), compute_kappa(table)
    percent = round(100 * float(np.trace(table)) / pairs, 2) if pairs else None
    kappa = None if kappa is None else round(kappa, 4)
    return Agreement(table=table.tolist(), pairs=pairs, percent=percent, kappa=kappa)


def compute_kappa(table: np.ndarray[Any, np.dtype[np.int64]]) -> float | None:
    """Return Cohen's kappa, (p_o - p_e) / (1 - p_e): agreement beyond that of chance, given the judges' label shares.

    Cohen, A Coefficient of Agreement for Nominal Scales, 1960.

    Args:
        table: number of pairs by the first judge's label and the second's, shape (labels, labels).
    Returns:
        From -1 to 1; None if the first judge used only one label: then the second's labels cannot change it.
    """
    if np.count_nonzero(table.sum(axis=1)) < 2:
        return None
    pairs, same = int(table.sum()), int(np.trace(table))
    chance = int(table.sum(axis=1) @ table.sum(axis=0))  # times pairs²
    return (pairs * same - chance) / (pairs**2 - chance)
