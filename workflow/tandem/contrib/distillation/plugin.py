"""The stage that has teachers score training lists."""

from tandem.contrib.distillation.options import TeacherParams
from tandem.stages import Kind, register_stage

register_stage(
    Kind(
        "teacher",
        "contrib.distillation.teacher:run",
        TeacherParams,
        env="models",
        threads="all",
        retries=2,
        gpu=("judge",),
        shard="contrib.distillation.teacher:run_shard",
        shard_for=("judge",),
        box="Training lists",
        verb="scoring training lists of",
    ),
    in_runs=False,
)
