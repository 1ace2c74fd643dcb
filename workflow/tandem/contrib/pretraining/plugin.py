"""Register encoders with source `pretrain`, and the stages that train them."""

from tandem.config.encoders import EncoderSource, register_encoder_source
from tandem.contrib.pretraining.options import (
    PRETRAINING,
    Pretrain,
    PretrainedEncoder,
    PretrainParams,
    VocabularyParams,
)
from tandem.stages import Kind, register_stage

register_encoder_source(
    "pretrain", EncoderSource(PRETRAINING, "objective", (PretrainedEncoder, Pretrain))
)

register_stage(
    Kind(
        "vocabulary",
        "contrib.pretraining.vocabulary:run",
        VocabularyParams,
        env="models",
        threads="all",
        box="Encoder",
        verb="learning a vocabulary for",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "pretrain",
        "contrib.pretraining.pretrain:run",
        PretrainParams,
        env="models",
        threads="all",
        retries=2,
        gpu=("start",),
        ranks=True,
        box="Encoder",
        holds="training",
        verb="pre-training",
    ),
    in_runs=False,
)
