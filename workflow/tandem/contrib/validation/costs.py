"""Estimate what it costs to rank each query's relevant passage among all."""

from tandem.extras.estimate.resources import Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import measure_process_with_ids
from tandem.plan.graph import Stage

_BYTES_ON_DISK = 12.0  # of a query's rank


@cost("average_rank")
def estimate_average_rank(stage: Stage, setting: Setting) -> Work:
    """Estimate comparing every query with every passage."""
    queries = setting.queries(stage, params_of(stage.upstream["queries"]).split)
    compared = float(queries * setting.passages(stage))
    return Work(
        rows=(
            ("flat_search", 2 * compared * setting.dimension(stage.upstream["passages"])),
            ("compared", compared),
        ),
        memory=measure_process_with_ids(stage, setting),
        disk=_BYTES_ON_DISK * queries,
    )
