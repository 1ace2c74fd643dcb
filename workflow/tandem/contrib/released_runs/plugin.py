"""Register the key `runs`, the stage that imports a released run, and lines of passages that the corpus lacks."""

from tandem.config.settings import register_section
from tandem.contrib.released_runs.options import ImportedParams, ImportedRun, has_ranks_alone
from tandem.stages import Kind, register_stage
from tandem.stages.base import Scoring
from tandem.stages.retrieval import RUN_LINES

register_section(
    "runs",
    dict[str, ImportedRun],
    {},
    "released run files, usable wherever a system's name is",
)
register_stage(
    Kind(
        "imported",
        "contrib.released_runs.imported:run_imported",
        ImportedParams,
        version=3,
        box="Collection",
        scoring=Scoring(order_if=has_ranks_alone),
    ),
    in_runs=False,
)
RUN_LINES["absent.parquet"] = "extras.absent_lines:iter_whole_run"
