"""Wins and losses of systems against one another, query by query: every pair in a table, one pair as a plot."""

from dataclasses import dataclass
from typing import Any

import altair
import numpy as np
from markupsafe import Markup

from tandem.reporting.layout import System, name
from tandem.reporting.vega import HEIGHT, figure, rows
from tandem.scoring.scores import read_aligned
from tandem.store.artifact import Artifact

DIGITS = 4  # of a query's value


@dataclass(frozen=True)
class Comparison:
    """Every pair of systems by the first measure that all have.

    Attributes:
        measure: its name.
        systems: their names.
        wins: per system and other system, on how many queries it is better.
        queries: how many queries there are.
        chart: the differences between the second system and the first; None for a single system.
    """

    measure: str
    systems: list[str]
    wins: list[list[int]]
    queries: int
    chart: Markup | None


def compare(systems: dict[System, Artifact]) -> Comparison:
    """Compare score artifacts of one dataset and split on all queries."""
    artifacts, names = list(systems.values()), [name(system) for system in systems]
    shared = [m for m in artifacts[0].params["measures"] if all(m in a.params["measures"] for a in artifacts)]
    _, values = read_aligned(artifacts, shared[:1])
    one = values[:, :, 0].round(DIGITS)  # as the page's list of queries has them: the last bits are no win
    wins = [[int((a > b).sum()) for b in one] for a in one]
    chart = differences(names[1], names[0], shared[0], (one[1] - one[0]).tolist()) if len(names) > 1 else None
    return Comparison(shared[0], names, wins, one.shape[1], chart)


def points(values: list[float]) -> list[dict[str, Any]]:
    """Differences in falling order as steps: how many queries stand before, what A wins, what it loses.

    The last one ends its step by standing there again. `compare.js` does the same for other pairs.
    """
    falling = np.round(np.sort(values)[::-1], DIGITS).tolist()
    return [
        {"before": at, "won": max(value, 0), "lost": min(value, 0)} for at, value in enumerate([*falling, falling[-1]])
    ]


def differences(a: str, b: str, measure: str, values: list[float]) -> Markup:
    """Differences A − B of all queries in falling order, as a plot."""
    told = f"{a} is better on {sum(v > 0 for v in values)} queries, {b} on {sum(v < 0 for v in values)}"
    made = points(values)
    base = altair.Chart(rows(made)).encode(
        x=altair.X("before:Q", title="queries, by difference", scale=altair.Scale(nice=False)),
        tooltip=[altair.Tooltip("won:Q", title="A better by"), altair.Tooltip("lost:Q", title="B better by")],
    )
    area = {"interpolate": "step-after", "opacity": 0.75}
    won = base.mark_area(color="var(--good)", **area).encode(y=altair.Y("won:Q", title=f"{measure}, A − B"))
    lost = base.mark_area(color="var(--bad)", **area).encode(y=altair.Y("lost:Q", title=f"{measure}, A − B"))
    numbers = [[str(point["before"] + 1), f"{point['won'] + point['lost']:+.4f}"] for point in made[:-1]]
    chart = altair.layer(won, lost).properties(width=820, height=HEIGHT - 30)
    return figure(f"{a} (A) against {b} (B): A is better above 0, B below", chart, told, ["query", "A − B"], numbers)
