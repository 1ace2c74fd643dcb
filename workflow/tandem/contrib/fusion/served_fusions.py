"""Fuse the lists of a fusion's systems for `tandem search`, one query at a time."""

import json
from collections.abc import Sequence
from pathlib import Path

from tandem.contrib.fusion.fuse import pool_lists, select_top
from tandem.contrib.fusion.options import FuseParams
from tandem.data.columns import Floats
from tandem.evaluation.measures import CHOSEN
from tandem.extras.serving import served_fusion
from tandem.plan.graph import Stage
from tandem.stages.retrieval import fusion


@served_fusion("fuse")
def fuse_lists(
    run: Stage, lists: Sequence[tuple[Sequence[str], Floats]], scored: Sequence[int | None]
) -> tuple[list[str], Floats]:
    """Fuse a query's lists as the stage does, with the settings that were tuned."""
    params = FuseParams.model_validate(run.values)
    tuned = run.upstream.get("tuned")
    if tuned:
        chosen = json.loads(Path(tuned.folder, CHOSEN).read_text(encoding="utf-8"))
        params = params.model_copy(update=chosen)
    pool = pool_lists(lists, scored)
    return select_top(pool.docs, fusion[params.method](pool, params), params.depth)
