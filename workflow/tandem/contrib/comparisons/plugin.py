"""Register `comparisons`, the objective of models that compare passages, and the stages that compare and re-rank."""

import math

from tandem.config.settings import register_section
from tandem.config.training import OwnObjective, register_own_objective
from tandem.contrib.comparisons.options import (
    LISTS_PER_PART,
    CompareParams,
    Comparison,
    RerankComparedParams,
    check_comparing,
)
from tandem.stages import Kind, register_stage
from tandem.stages.base import Part, Scoring

register_section(
    "comparisons",
    dict[str, Comparison],
    {},
    "models that compare passages, usable where a cross-encoder re-ranks",
)
register_own_objective(
    "compares",
    OwnObjective(
        "contrib.comparisons.pair_objective:start_comparing",
        check_comparing,
        chance=math.log(2),  # each pair is learned in both orders: equal scores are right in one
    ),
)
register_stage(
    Kind(
        "compare",
        "contrib.comparisons.compare_passages:run",
        CompareParams,
        env="models",
        threads="all",
        retries=2,
        gpu=("model",),
        shard="contrib.comparisons.compare_passages:run_shard",
        part=Part(LISTS_PER_PART, "queries"),
        box="Re-ranking",
        verb="comparing",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "rerank_compared",
        "contrib.comparisons.compare_passages:run_rerank",
        RerankComparedParams,
        env="models",
        box="Re-ranking",
        scoring=Scoring(of="top"),
        verb="re-ranking",
    ),
    in_runs=False,
)
