"""Validation within trainings and of checkpoints; datasets of source `reduced`; the command `fidelity`."""

from dataclasses import replace

from tandem.commands import STEPS, Command, register_command
from tandem.config.datasets import register_source
from tandem.contrib.validation.options import AverageRankParams, Reduced
from tandem.stages import KINDS, Kind, register_stage
from tandem.stages.training import MODEL_SOURCES, OUTCOMES, WATCHES

register_source(Reduced)
register_stage(
    replace(
        KINDS["model"],
        name="checkpoint",
        run="contrib.validation.segments:run",
        holds="checkpoint",
        rule="",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "average_rank",
        "contrib.validation.average_rank:run",
        AverageRankParams,
        version=2,
        env="search",
        threads="all",
        box="Scores",
        lower_is_better=True,
    ),
    in_runs=False,
)
WATCHES["validation"] = "contrib.validation.within:start_validation"
OUTCOMES["chance"] = "contrib.validation.chance:describe_chance"
MODEL_SOURCES["checkpoint.1"] = "contrib.validation.taking_over:take_over"
register_command(
    Command(
        "fidelity",
        "contrib.validation.comparison:write_fidelity",
        STEPS,
        "How well reduced datasets rank checkpoints.",
    )
)
