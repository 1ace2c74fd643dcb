"""Fusion of runs: ways to make one score of several, and the settings of each that are tried when it is tuned."""

from collections.abc import Callable
from typing import Any

from tandem.fusion.pool import Floats64, Pool
from tandem.fusion.rrf import constants, rrf
from tandem.fusion.weighted import weighted, weightings

Settings = dict[str, Any]

# The fused score of every document of a query's pool, shape (documents,), by settings named as in the configuration.
METHODS: dict[str, Callable[[Pool, Settings], Floats64]] = {"rrf": rrf, "weighted": weighted}
# The settings tried for so many runs, the preferred first: of equally good ones the first is taken.
GRIDS: dict[str, Callable[[int, Settings], list[Settings]]] = {"rrf": constants, "weighted": weightings}
