"""Reading score artifacts: one row per query, one column per measure, systems aligned."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tandem.errors import UserError
from tandem.store.artifact import Artifact

SCORES, STATISTICS = "scores.parquet", "statistics.json"
Floats64 = NDArray[np.float64]


def statistics(artifact: Artifact) -> dict[str, Any]:
    """A score artifact's means, number of queries and of ties."""
    told: dict[str, Any] = json.loads(artifact.path(STATISTICS).read_text(encoding="utf-8"))
    return told


def read_scores(artifact: Artifact, measures: Sequence[str]) -> tuple[list[str], Floats64]:
    """Query ids in file order, and their values of the measures asked for, shape (queries, measures).

    Raises:
        UserError: a measure that was not computed.
    """
    path = artifact.path(SCORES)
    have = artifact.params["measures"]
    for measure in measures:
        if measure not in have:
            raise UserError(f"{path}: holds no {measure}; it holds {', '.join(have)}; add it to the measures")
    # The stage writes a full grid, query by query, so reading it back is a reshape.
    table = pq.read_table(path, columns=["query_id", "value"])
    grid = table["value"].to_numpy().reshape(-1, len(have))
    queries: list[str] = table["query_id"].to_pylist()[:: len(have)]
    return queries, grid[:, [have.index(measure) for measure in measures]]


def read_aligned(artifacts: Sequence[Artifact], measures: Sequence[str]) -> tuple[list[str], Floats64]:
    """The same queries of several systems: query ids and values, shape (systems, queries, measures).

    Raises:
        UserError: two systems were scored on different queries.
    """
    read = [read_scores(artifact, measures) for artifact in artifacts]
    queries = read[0][0]
    for artifact, (others, _) in zip(artifacts, read, strict=True):
        if others != queries:
            raise UserError(
                f"{artifact.folder}: scored {len(others)} queries that are not the {len(queries)} of "
                f"{artifacts[0].folder}; systems are compared on the same dataset and split"
            )
    return queries, np.stack([values for _, values in read])
