"""How large derived datasets are, as far as that follows from the datasets that they are made of."""

from dataclasses import replace

from tandem.extras.estimate.resources import (
    TOKENS_PER_WORD,
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


@derived_size("windows")
def measure_windows(stage: Stage, whole: Volumes, beside: Volumes | None) -> Volumes:
    """Return the size of windows: as many as documents of the mean length have."""
    params, tokens = params_of(stage), whole.lengths["passage"]
    units = tokens / (TOKENS_PER_WORD if params.unit == "words" else 1.0)
    windows = 1 + max(0.0, units - params.length) / params.stride
    passages = round(whole.passages * min(windows, params.most or windows))
    lengths = {**whole.lengths, "passage": tokens * min(1.0, params.length / units)}
    return replace(whole, passages=passages, lengths=lengths, counted=False)
