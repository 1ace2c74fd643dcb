"""Generators, their texts, and the datasets, runs and stages that are made of these."""

from tandem.config.datasets import register_source
from tandem.config.encoders import StartBlock, register_start
from tandem.config.settings import Block, register_section
from tandem.contrib.generation.options import (
    GENERATORS,
    PASSAGES_PER_PART,
    TEXTS_PER_PART,
    EncoderDecoderParams,
    Expanded,
    Expansion,
    ExpansionParams,
    GeneratedParams,
    GeneratedQueries,
    Generation,
    GeneratorEntry,
    GeneratorParams,
    NewGeneratorParams,
    ScoreGeneratedParams,
    TrainGeneratorParams,
)
from tandem.stages import Kind, register_stage
from tandem.stages.base import Part

register_section(
    "expansions",
    dict[str, Expansion],
    {},
    "runs over passages with generated queries behind them, usable wherever a run's name is",
)
register_section(
    "generators",
    dict[str, GeneratorEntry],
    {},
    "what writes texts, also those of config/generators/; see docs/generation.md",
    Block("source", GENERATORS, is_catalogue=True),
)
register_section(
    "generations",
    dict[str, Generation],
    {},
    "texts of passages by a generator, which datasets of source expanded and generated_queries name",
)
register_start("generators", StartBlock("generator", pooling="decoder", has_positions=False))
register_source(Expanded, GeneratedQueries)

register_stage(
    Kind(
        "generator",
        "contrib.generation.starting:run",
        GeneratorParams,
        env="models",
        box="Encoder",
        holds="encoder",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "new_generator",
        "contrib.generation.starting:run_new",
        NewGeneratorParams,
        env="models",
        box="Encoder",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "encoder_decoder",
        "contrib.generation.starting:run_encoder_decoder",
        EncoderDecoderParams,
        env="models",
        box="Encoder",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "train_generator",
        "contrib.generation.train:run",
        TrainGeneratorParams,
        env="models",
        threads="all",
        retries=2,
        gpu=("start",),
        ranks=True,
        box="Training",
        holds="training",
        verb="training",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "generated",
        "contrib.generation.texts:run",
        GeneratedParams,
        env="models",
        threads="all",
        retries=2,
        gpu=("generator",),
        shard="contrib.generation.texts:run_shard",
        part=Part(PASSAGES_PER_PART, "passages"),
        box="Collection",
        verb="generating",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "score_generated",
        "contrib.generation.text_scores:run",
        ScoreGeneratedParams,
        env="models",
        threads="all",
        retries=2,
        gpu=("model",),
        shard="contrib.generation.text_scores:run_shard",
        part=Part(TEXTS_PER_PART, "texts"),
        box="Re-ranking",
        verb="scoring",
    ),
    in_runs=False,
)
register_stage(
    Kind("expansion", "contrib.generation.expansion:run", ExpansionParams, box="Sparse search"),
    in_runs=False,
)
