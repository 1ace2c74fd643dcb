"""Register the stage that finds answers in the passages of a run."""

from tandem.contrib.answers.options import MatchParams
from tandem.stages import Kind, register_stage

register_stage(
    Kind(
        "match",
        "contrib.answers.matching:run",
        MatchParams,
        threads="all",
        box="Scores",
        is_packed=True,
    ),
    in_runs=False,
)
