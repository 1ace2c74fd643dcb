"""Estimate how many windows documents have, and what it costs to score them."""

from dataclasses import replace

from tandem.extras.estimate.resources import (
    TOKENS_PER_WORD,
    Setting,
    Volumes,
    Work,
    cost,
    derived_size,
    params_of,
)
from tandem.extras.estimate.stage_costs import count_inputs, estimate_pair_scores, find_depth
from tandem.plan.graph import Stage


@derived_size("windows")
def measure_windows(stage: Stage, whole: Volumes, beside: Volumes | None) -> Volumes:
    """Return the size of a dataset of windows: each document counts as one of the mean length."""
    params, tokens = params_of(stage), whole.lengths["passage"]
    units = tokens / (TOKENS_PER_WORD if params.unit == "words" else 1.0)
    windows = 1 + max(0.0, units - params.length) / params.stride
    passages = round(whole.passages * min(windows, params.most or windows))
    lengths = {**whole.lengths, "passage": tokens * min(1.0, params.length / units)}
    return replace(whole, passages=passages, lengths=lengths, counted=False)


@cost("rerank_windows")
def estimate_rerank_windows(stage: Stage, setting: Setting) -> Work:
    """Estimate scoring the windows of the documents at the top of every query's list."""
    params = params_of(stage)
    windows_per_document = 1.0
    if params.method != "first":
        windows = setting.sizes(stage.upstream["windows"]).passages
        windows_per_document = windows / max(1, setting.passages(stage))

    pairs = setting.queries(stage) * params.depth * windows_per_document
    run = setting.run(stage, find_depth(stage))
    return estimate_pair_scores(
        setting, stage.upstream["judge_tokens.0"], pairs, count_inputs(stage, "judge"), run=run
    )
