"""Estimate what it costs to fuse runs."""

from tandem.extras.estimate.resources import Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import (
    BYTES_PER_LOOKED_UP_ID,
    QUERIES_IN_MEMORY,
    count_inputs,
    measure_process_with_ids,
)
from tandem.plan.graph import Stage

_BYTES_PER_FUSED_LINE = 150


@cost("fuse")
def estimate_fuse(stage: Stage, setting: Setting) -> Work:
    """Estimate reading several runs and writing one."""
    queries, depth = setting.queries(stage), params_of(stage).depth
    ids = BYTES_PER_LOOKED_UP_ID * setting.passages(stage)
    lines = _BYTES_PER_FUSED_LINE * depth * min(queries, QUERIES_IN_MEMORY)
    return Work(
        rows=(("lines", queries * depth * count_inputs(stage, "run")),),
        memory=measure_process_with_ids(stage, setting) + (ids + lines),
        run=setting.run(stage),
    )
