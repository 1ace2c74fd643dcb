"""Register the source and the section `perturbed`, the stage that restores a run's queries, and self-teaching."""

from tandem.config.datasets import register_source
from tandem.config.settings import register_section
from tandem.config.training import register_query_copies
from tandem.contrib.robustness.options import Perturbed, PerturbedRun, RestoreQueriesParams
from tandem.stages import Kind, register_stage
from tandem.stages.base import Scoring

register_source(Perturbed)
register_section(
    "perturbed",
    dict[str, PerturbedRun],
    {},
    "runs on broken queries, usable as runs on the others",
)
register_stage(
    Kind(
        "restore_queries",
        "contrib.robustness.restore:run",
        RestoreQueriesParams,
        version=2,  # the manifest says down to which rank scores are a model's
        box="Retrieval",
        scoring=Scoring(of="chosen"),
    ),
    in_runs=False,
)
register_query_copies("self_teaching", "contrib.robustness.self_teaching:find_broken_queries")
