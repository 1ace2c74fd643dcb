"""Register pipelines, and the stages that choose a system and write its run."""

from tandem.config.settings import register_section
from tandem.contrib.pipelines.options import ChoosePipelineParams, Pipeline, PipelineParams
from tandem.stages import Kind, register_stage
from tandem.stages.base import Scoring

register_section(
    "pipelines",
    dict[str, Pipeline],
    {},
    "the best of several systems on dev, usable as a run",
)
register_stage(
    Kind(
        "pipeline",
        "contrib.pipelines.choose:run",
        PipelineParams,
        version=2,
        box="Re-ranking",
        scoring=Scoring(of="chosen"),
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "choose_pipeline",
        "contrib.pipelines.choose:run_choice",
        ChoosePipelineParams,
        box="Re-ranking",
        split_key="pipelines.{name}.split",
    ),
    in_runs=False,
)
