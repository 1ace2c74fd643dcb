"""Register fusions of runs, the stage that fuses, and the stage that chooses a fusion's settings."""

from tandem.config.settings import register_section
from tandem.contrib.fusion.options import FuseParams, Fusion, TuneFusionParams
from tandem.stages import Kind, register_stage
from tandem.stages.base import Scoring

register_section(
    "fusions",
    dict[str, Fusion],
    {},
    "several runs as one, usable wherever a run's name is",
)
register_stage(
    Kind(
        "fuse",
        "contrib.fusion.fuse:run",
        FuseParams,
        version=2,
        box="Fusion",
        scoring=Scoring(by="fusion", depth_key="fusions.{name}.depth"),
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "tune_fusion",
        "contrib.fusion.fuse:run_fusion_tuning",
        TuneFusionParams,
        box="Fusion",
        split_key="fusions.{name}.tune.split",
    ),
    in_runs=False,
)
