"""Estimate what a teacher's scores cost."""

from tandem.extras.estimate.resources import Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import (
    UNLIMITED,
    count_inputs,
    count_texts_each,
    estimate_pair_scores,
)
from tandem.plan.graph import Stage


@cost("teacher")
def estimate_teacher(stage: Stage, setting: Setting) -> Work:
    """Estimate the cost of a teacher's scores of all listed pairs."""
    lists, judges = params_of(stage.upstream["candidates"]), count_inputs(stage, "judge")
    pairs = min(setting.queries(stage, "train"), lists.queries or UNLIMITED) * lists.depth
    if not judges:
        return Work(rows=(("lines", pairs),), disk=4 * pairs)
    tokens = stage.upstream["judge_tokens.0"]
    texts = count_texts_each(stage, tokens, setting)
    return estimate_pair_scores(setting, tokens, pairs * texts, judges, disk=4 * pairs)
