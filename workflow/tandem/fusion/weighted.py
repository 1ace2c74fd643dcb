"""The weighted sum of normalised scores."""

from itertools import combinations, pairwise
from typing import Any

import numpy as np

from tandem.fusion.normalize import NORMALIZATIONS
from tandem.fusion.pool import Floats64, Pool, total


def weighted(pool: Pool, settings: dict[str, Any]) -> Floats64:
    """score(d) = Σ over the runs of w · s(d), with each run's scores s normalised per query (`normalize.py`).

    The linear combination of Fox and Shaw's CombSUM (TREC-2, 1993) with a weight per run, as Vogt and Cottrell (Fusion
    via a Linear Combination of Scores, Information Retrieval 1999) study it.

    Args:
        pool: what the runs found.
        settings: `weights`, one a run; `normalize`, a name of `NORMALIZATIONS`.
    """
    normalize = NORMALIZATIONS[settings["normalize"]]
    columns = [weight * normalize(scores) for weight, scores in zip(settings["weights"], pool.scores.T, strict=True)]
    return total(np.stack(columns, axis=1))


def weightings(runs: int, told: dict[str, Any]) -> list[dict[str, Any]]:
    """Weights that sum to 1, in steps of `told["step"]`: all points of a simplex grid, the most even first.

    For two runs and a step of 0.1 these are (0.5, 0.5), (0.6, 0.4), (0.4, 0.6), … (0, 1).
    """
    parts = round(1 / told["step"])
    # Where the bars stand among stars and bars tells how the parts are shared out.
    grid = []
    for bars in combinations(range(parts + runs - 1), runs - 1):
        edges = (-1, *bars, parts + runs - 1)
        grid.append([right - left - 1 for left, right in pairwise(edges)])
    grid.sort(key=lambda shares: (sum(share * share for share in shares), [-share for share in shares]))
    return [{"weights": [share / parts for share in shares]} for shares in grid]
