"""Register the key `analysis`, the stages behind the notebooks, and the commands that show them."""

from tandem.commands import STEPS, Command, register_command
from tandem.config.settings import register_section
from tandem.contrib.analysis.options import Analysis, DynamicsParams, ErrorsParams, HardnessParams
from tandem.stages import Kind, register_stage

register_section(
    "analysis", Analysis, Analysis(), "what `snakemake notebooks` looks at; see docs/notebooks.md"
)

register_stage(
    Kind("errors", "contrib.analysis.wrong_results:run", ErrorsParams, version=3, box="Scores"),
    in_runs=False,
)
register_stage(
    Kind(
        "dynamics",
        "contrib.analysis.dynamics:run",
        DynamicsParams,
        version=2,
        env="models",
        threads="all",
        gpu=("point", "start", "retriever", "reranker"),
        box="Scores",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "hardness",
        "contrib.analysis.hardness:run",
        HardnessParams,
        env="models",
        threads="all",
        gpu=("judge",),
        box="Scores",
    ),
    in_runs=False,
)

register_command(
    Command(
        "notebook",
        "contrib.analysis.notebook:execute_notebook",
        STEPS,
        "Execute an analysis notebook.",
    )
)
register_command(
    Command(
        "error-table",
        "contrib.analysis.error_table:write_error_table",
        STEPS,
        "The table of error types.",
    )
)
