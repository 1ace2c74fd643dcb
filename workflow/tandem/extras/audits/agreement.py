"""How far two judges agree: people and a language model that graded the same pairs."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from pydantic import BaseModel

from tandem.report.formats import number
from tandem.report.page import Grid
from tandem.store.artifact import Artifact

Counts = np.ndarray[Any, np.dtype[np.int64]]


class Agreement(BaseModel):
    """Labels of the same pairs by people and by a model.

    Attributes:
        table: number of pairs by people's label (rows) and the model's (columns), labels from 0.
        percent: of pairs with the same label; None without a pair.
        kappa: see `cohen_kappa`.
    """

    table: list[list[int]]
    pairs: int
    percent: float | None
    kappa: float | None


def agreement(labels: Iterable[tuple[int, int]], count: int) -> Agreement:
    """The agreement of (people's, model's) labels, each from 0 to `count` - 1."""
    table = np.zeros((count, count), np.int64)
    for people, model in labels:
        table[int(people), int(model)] += 1
    pairs = int(table.sum())
    percent = round(100 * float(np.trace(table)) / pairs, 2) if pairs else None
    kappa = cohen_kappa(table)
    return Agreement(
        table=table.tolist(), pairs=pairs, percent=percent, kappa=None if kappa is None else round(kappa, 4)
    )


def cohen_kappa(table: Counts) -> float | None:
    """Cohen's kappa, (p_o - p_e) / (1 - p_e): agreement beyond what the judges' shares of labels give by chance.

    Cohen, A Coefficient of Agreement for Nominal Scales, 1960.

    Args:
        table: number of pairs by the first judge's label and the second's, shape (labels, labels).
    Returns:
        From -1 to 1; None where the first judge used one label alone: then the second's labels cannot change it.
    """
    if np.count_nonzero(table.sum(axis=1)) < 2:
        return None
    pairs, same = int(table.sum()), int(np.trace(table))
    chance = int(table.sum(axis=1) @ table.sum(axis=0))  # times pairs²
    return (pairs * same - chance) / (pairs**2 - chance)


TITLES = {"relevant": "Relevant (1) or not (0)", "grades": "Grades"}


def agreement_grids(artifact: Artifact) -> list[Grid]:
    """The tables of the agreement between people and the model of a stage `judge_llm`."""
    summary = json.loads(artifact.path("summary.json").read_text(encoding="utf-8"))
    agreements = {name: Agreement.model_validate(values) for name, values in summary["agreement"].items()}
    return [_grid(TITLES[name], own) for name, own in agreements.items() if own.pairs]


def _grid(title: str, agreement: Agreement) -> Grid:
    labels = range(len(agreement.table))
    kappa = (
        "κ is not defined, people gave one label alone"
        if agreement.kappa is None
        else f"Cohen's κ {agreement.kappa:.2f}"
    )
    same = f"the same label for {number(agreement.percent)} % of {agreement.pairs:,} pairs"
    rows = [[f"people: {label}", *(f"{count:,}" for count in agreement.table[label])] for label in labels]
    return Grid(f"{title}: {same}; {kappa}", ["", *(f"model: {label}" for label in labels)], rows)
