"""Register how a teacher's scores are learned, and the stages that score training lists or read scores in them."""

from tandem.config.training import TeachingCode, register_teaching
from tandem.contrib.distillation.options import (
    GivenScoresParams,
    TeacherParams,
    check_teaching,
)
from tandem.stages import Kind, register_stage

register_teaching(
    TeachingCode(
        loss="contrib.distillation.taught_lists:DistilledListLoss",
        in_batch="contrib.distillation.in_batch:start_teacher",
        draws="contrib.distillation.teacher_draws:find_draws",
        check=check_teaching,
    )
)

register_stage(
    Kind(
        "given_scores",
        "contrib.distillation.given_scores:run",
        GivenScoresParams,
        box="Training lists",
        verb="reading scores in training lists of",
    ),
    in_runs=False,
)
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
