"""Scores of a table's rows, query by query: the mean over seeds for tests, each seed's mean for the spread."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.errors import UserError
from tandem.reporting.layout import System, name
from tandem.scoring.scores import read_aligned
from tandem.store.artifact import Artifact

Floats64 = NDArray[np.float64]


@dataclass(frozen=True)
class Scored:
    """A score artifact and what it is in a table.

    Attributes:
        system: the row.
        column: the layout's dataset whose columns it fills; empty where the layout has one.
        dataset: where it was searched.
        collection: what that is to the layout: `msmarco` of `msmarco-titles`.
        split: on which queries.
        seed: the models' seed.
        instead: which datasets stand in where its models were trained.
        artifact: the scores.
    """

    system: System
    column: str
    dataset: str
    collection: str
    split: str
    seed: int
    instead: str
    artifact: Artifact

    @property
    def place(self) -> tuple[str, str, str]:
        """What scores share that can be compared query by query."""
        return self.column, self.dataset, self.split


@dataclass(frozen=True)
class Block:
    """What is compared query by query: the systems searched in one place.

    Attributes:
        systems: in the layout's order.
        scored: of each system, its scores by seed.
        measures: those that all of them have.
        queries: how many.
        values: the mean over seeds of each query's value, shape (systems, queries, measures).
        means: each seed's mean over queries, shape (seeds, systems, measures).
    """

    systems: list[System]
    scored: list[list[Scored]]
    measures: list[str]
    queries: int
    values: Floats64
    means: Floats64

    def spread(self, system: int) -> Floats64 | None:
        """Standard deviation over seeds of a system's means (n - 1 in the denominator), shape (measures,).

        None with one seed, and for a system that no seed touches.
        """
        if len({one.artifact.key for one in self.scored[system]}) < 2:
            return None
        return np.asarray(self.means[:, system].std(axis=0, ddof=1))


def read_block(scored: Sequence[Scored], systems: Sequence[System]) -> Block:
    """Read the scores of one place.

    Args:
        scored: all of them, of every system and seed.
        systems: the layout's order.
    Raises:
        UserError: a system lacks a seed that another has, or systems were scored on different queries.
    """
    seeds = list(dict.fromkeys(one.seed for one in scored))
    there = [system for system in systems if any(one.system == system for one in scored)]
    found = {(one.system, one.seed): one for one in scored}
    for system in there:
        for seed in seeds:
            if (system, seed) not in found:
                raise UserError(f"--rows: {name(system)} has no scores of seed {seed}; every row needs every seed")
    have = [one.artifact.params["measures"] for one in scored]
    measures = [measure for measure in have[0] if all(measure in others for others in have)]
    read = [read_aligned([found[system, seed].artifact for system in there], measures) for seed in seeds]
    if any(queries != read[0][0] for queries, _ in read):
        raise UserError(f"{found[there[0], seeds[0]].artifact.folder}: seeds were scored on different queries")
    values = np.stack([values for _, values in read])  # (seeds, systems, queries, measures)
    by_system = [[found[system, seed] for seed in seeds] for system in there]
    return Block(there, by_system, measures, len(read[0][0]), values.mean(axis=0), values.mean(axis=2))
