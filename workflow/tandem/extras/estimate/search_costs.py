"""The cost of exact search by vectors.

Operations are those of distances; a multiplication and its addition count as two. They have the rate `flat_search`
(see config/hardware/).
"""

from tandem.extras.estimate.resources import MIB, Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import LIGHT_PROCESS_BYTES
from tandem.plan.graph import Stage

_BYTES_PER_SORTED_ID = 24  # per passage, where the alphabetical order of ids is mapped


@cost("retrieve")
def estimate_retrieve(stage: Stage, setting: Setting) -> Work:
    """Estimate exact inner-product search of every query against every passage."""
    passages, split = setting.passages(stage), params_of(stage.upstream["queries"]).split
    queries = setting.queries(stage, split)
    dimension, depth = setting.dimension(stage.upstream["passages"]), params_of(stage).depth
    compared = float(queries * passages)

    # The best of a group of queries get a quarter (retrieve.py), two stretches of vectors a third (faiss_search.py).
    allowed = (setting.execution.search_memory or 2048) * MIB
    held = min(allowed / 4, 16 * queries * depth) + min(allowed / 3, 6 * passages * dimension)
    return Work(
        rows=(("flat_search", 2 * compared * dimension), ("compared", compared)),
        memory=LIGHT_PROCESS_BYTES + held + _BYTES_PER_SORTED_ID * passages,
        run=setting.run(stage, split=split),
    )
