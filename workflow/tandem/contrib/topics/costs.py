"""Estimate what it costs to cluster the training queries."""

from tandem.extras.estimate.resources import Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import LIGHT_PROCESS_BYTES
from tandem.plan.graph import Stage

_ROUNDS = 10  # of k-means (extras/kmeans.py); afterwards, each query's nearest centre is found
_BYTES_PER_NUMBER = 4.0
_BYTES_ON_DISK = 16.0  # of a query


@cost("topics")
def estimate_topics(stage: Stage, setting: Setting) -> Work:
    """Estimate comparing every query with every centre in each round."""
    embedded = stage.upstream["queries"]
    queries = setting.queries(stage, params_of(embedded).split)
    numbers = queries * setting.dimension(embedded)
    compared = 2.0 * numbers * params_of(stage).clusters
    return Work(
        rows=(("faiss", (_ROUNDS + 1) * compared),),
        memory=LIGHT_PROCESS_BYTES + 2 * _BYTES_PER_NUMBER * numbers,
        disk=_BYTES_ON_DISK * queries,
    )
