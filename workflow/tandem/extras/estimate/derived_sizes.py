"""How large derived datasets are, as far as that follows from the datasets that they are made of."""

from dataclasses import replace

from tandem.extras.estimate.resources import (
    TOKENS_PER_SENTENCE,
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


@derived_size("cropped_sentences")
def measure_sentences(stage: Stage, whole: Volumes, beside: Volumes | None) -> Volumes:
    """Return the size of a dataset whose queries are sentences of passages."""
    sentences_each = max(1.0, whole.lengths["passage"] / TOKENS_PER_SENTENCE)
    count = round(whole.passages * sentences_each)
    count = min(count, stage.values.get("most") or count)
    count += beside.queries.get("train", 0) if beside else 0
    return replace(whole, queries={"train": count}, positives={"train": count}, counted=False)
