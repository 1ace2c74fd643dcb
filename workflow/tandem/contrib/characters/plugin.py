"""Register encoders with source `characters`, the stage that trains them, and the stage of the words that they read."""

from tandem.config.encoders import EncoderSource, register_encoder_source
from tandem.contrib.characters.options import CharacterEncoder, CharacterEncoderParams
from tandem.stages import Kind, register_stage
from tandem.stages.base import Part
from tandem.stages.training import TokensParams

register_encoder_source("characters", EncoderSource({"characters": CharacterEncoder}, "source"))

register_stage(
    Kind(
        "character_encoder",
        "contrib.characters.add_characters:run",
        CharacterEncoderParams,
        env="models",
        threads="all",
        gpu=("start",),
        box="Encoder",
        holds="encoder",
        tokens="word_tokens",
        verb="learning words' characters for",
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "word_tokens",
        "contrib.characters.words:run",
        TokensParams,
        env="models",
        shard="contrib.characters.words:run_shard",
        part=Part(1 << 18, "passages"),
        box="Encoder",
        holds="tokens",
        verb="splitting into words",
    ),
    in_runs=False,
)
