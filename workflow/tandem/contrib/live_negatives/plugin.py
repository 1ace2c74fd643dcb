"""Register the objective of live negatives, and the stage that puts relevant passages in place of their queries."""

from tandem.config.training import OwnObjective, register_own_objective
from tandem.contrib.live_negatives.options import PositiveVectorsParams, check_live
from tandem.stages import Kind, register_stage

register_own_objective(
    "live_negatives", OwnObjective("contrib.live_negatives.live:start_live", check_live)
)

register_stage(
    Kind(
        "positive_vectors",
        "contrib.live_negatives.look_ahead:run",
        PositiveVectorsParams,
        env="search",
        box="Encoding",
        holds="vectors",
        vectors="text",
        verb="taking vectors of positives for",
    ),
    in_runs=False,
)
