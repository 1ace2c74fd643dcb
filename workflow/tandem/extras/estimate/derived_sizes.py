"""How large derived datasets are, as far as that follows from the sizes of the datasets that they are made of."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

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


def unite_sizes(parts: Sequence[Volumes]) -> Volumes:
    """Return the size of several datasets as one, whose texts have the mean length of theirs."""
    queries = Counter[str]()
    positives = Counter[str]()
    for part in parts:
        queries.update(part.queries)
        # one relevant passage per query where their number is not known
        positives.update({**part.queries, **part.positives})
    weights = {
        "passage": [max(1, part.passages) for part in parts],
        "query": [max(1, sum(part.queries.values())) for part in parts],
    }
    lengths = {
        side: fmean([part.lengths[side] for part in parts], weights[side]) for side in weights
    }
    return Volumes(
        passages=sum(part.passages for part in parts),
        queries=dict(queries),
        lengths=lengths,
        counted=all(part.counted for part in parts),
        positives=dict(positives),
    )
