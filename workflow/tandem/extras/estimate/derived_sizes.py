"""How large derived datasets are, as far as that follows from the datasets that they are made of."""

from dataclasses import replace

from tandem.extras.estimate.resources import (
    Volumes,
    derived_size,
    params_of,
)
from tandem.plan.graph import Stage


@derived_size("reduced")
def measure_reduced(stage: Stage, whole: Volumes, beside: Volumes | None) -> Volumes:
    """Return the size of a collection for validation: at most what a query brings, times its queries."""
    params = params_of(stage)
    dev_queries = whole.queries.get("dev", 0)
    queries = min(dev_queries, params.dev_queries or dev_queries)
    brought = queries * (params.depth + params.others + 1)
    return replace(whole, passages=min(whole.passages, brought), queries={"dev": queries})
