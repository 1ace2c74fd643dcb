"""Datasets of source `perturbed`, entries of `perturbed`, and the stage that restores the queries of a run."""

from tandem.config.datasets import register_source
from tandem.config.settings import register_section
from tandem.contrib.robustness.options import Perturbed, PerturbedRun, RestoreQueriesParams
from tandem.stages import Kind, register_stage

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
        box="Retrieval",
    ),
    in_runs=False,
)
