"""Register representations with several vectors per text, published checkpoints, and the stages for these vectors."""

from tandem.config.representations import register_representation
from tandem.contrib.late_interaction.options import (
    METADATA,
    CoilVectors,
    MaxSimParams,
    Multi,
    PolyCodes,
    TokenVectorsParams,
)
from tandem.models.folders import LIBRARY, FolderForm, register_folder_form
from tandem.stages import Kind, register_stage
from tandem.stages.base import Scoring

for options in (Multi, CoilVectors, PolyCodes):
    register_representation(options)

register_folder_form(
    "late_interaction",
    FolderForm(
        describe="contrib.late_interaction.checkpoint_files:describe_token_vectors",
        adopt="contrib.late_interaction.adopted_checkpoints:adopt_colbert",
        files=(METADATA,),
        lengths=((METADATA, "doc_maxlen"), (LIBRARY, "document_length")),
        values={
            "skiplist_words": list,
            **dict.fromkeys(("doc_maxlen", "document_length", "query_length", "query_maxlen"), int),
        },
        packages=("pylate",),
    ),
)

register_stage(
    Kind(
        "token_vectors",
        "contrib.late_interaction.encode_tokens:run",
        TokenVectorsParams,
        env="models",
        threads="all",
        gpu=("model",),
        shard="contrib.late_interaction.encode_tokens:run_shard",
        box="Encoding",
        holds="vectors",
        vectors="token",
        verb="encoding",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "maxsim",
        "contrib.late_interaction.maxsim:run",
        MaxSimParams,
        version=2,
        env="search",
        threads="all",
        box="Retrieval",
        scoring=Scoring(by="dual"),
        verb="searching",
    ),
    in_runs=False,
)
