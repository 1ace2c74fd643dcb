"""Generated texts: the generators, how they are trained, the texts, and what a scorer says of these."""

from operator import not_
from typing import Literal

from pydantic import Field

from tandem.config.base import Precision, equals
from tandem.config.datasets import AnswerMatch
from tandem.config.generation import Decoding, NewGenerator, Prompt, Seq2SeqTrain, Target
from tandem.config.language_models import LanguageModel
from tandem.config.training import Lora
from tandem.stages.base import Kind, Params, Part
from tandem.stages.retrieval import RunParams
from tandem.stages.training import EncoderParams

PASSAGES_PER_PART = 1024  # whose texts are generated together: what a killed stage loses at most
TEXTS_PER_PART = 1 << 14  # that are scored together
TEXTS_FILE = "generated.parquet"
SCORES_FILE = "scores.parquet"


class GeneratorParams(EncoderParams):
    """A published generator, copied and checked."""


class NewGeneratorParams(NewGenerator, Params):
    """A T5 of random weights with the vocabulary of the input `encoder`."""

    seed: int = Field(description="seed of the random weights")


class TrainGeneratorParams(Params):
    """Training of a generator on a dataset's pairs of a passage and a query, or of a query and what answers it."""

    objective: Literal["seq2seq"] = Field("seq2seq", description="what is learned: each token of the target")
    prompt: Prompt = Field("{passage}", description="what the generator reads")
    target: Target = Field("query", exclude_if=equals("query"), description="what it learns to write")
    match: AnswerMatch = Field(
        "string", exclude_if=equals("string"), description="of sentences: how an answer is found in one"
    )
    length: int = Field(256, ge=8, description="tokens that it reads, the prompt's and special ones included")
    target_length: int = Field(32, ge=2, description="tokens of a target, the last one included")
    split: str = Field("train", description="the queries' split")
    lora: Lora | None = Field(None, exclude_if=not_, description="learn low-rank adapters instead of all weights")
    train: Seq2SeqTrain = Field(description="how it learns; the seed is set")


class AskedModel(LanguageModel):
    """A language model behind a server."""

    url: str = Field(description="of the server")


class GeneratedParams(Decoding, Params):
    """Texts of passages or queries by a generator, or by a language model behind a server."""

    side: Literal["passages", "queries"] = Field("passages", description="what is read")
    split: str | None = Field(None, exclude_if=not_, description="of queries: their split")
    passages: int | None = Field(None, exclude_if=not_, description="read so many passages alone, by their ids' hash")
    prompt: Prompt = Field("{passage}", description="what the generator reads")
    length: int = Field(256, ge=8, description="tokens that it reads, the prompt's and special ones included")
    seed: int = Field(description="of what is drawn")
    asked: AskedModel | None = Field(None, exclude_if=not_, description="the language model instead of `generator`")


class ScoreGeneratedParams(Params):
    """Scores of generated texts, as queries, with their passages."""

    number: int = Field(1, ge=1, description="texts of a passage that are scored, the first ones")
    query_length: int = Field(ge=1, description="longest query, in tokens without special ones")
    passage_length: int = Field(ge=1, description="longest passage, likewise")
    precision: Precision = Field("auto", description="auto: bf16 where the device has it")
    batch_tokens: int = Field(4096, ge=64, description="tokens of a batch, padding included")


class ExpansionParams(RunParams):
    """A run over passages with generated queries behind them, as one over the passages."""


KINDS = (
    Kind("generator", "extras.generation.generators:run", GeneratorParams, env="models", box="Encoder",
        holds="encoder"),
    Kind("new_generator", "extras.generation.generators:run_new", NewGeneratorParams, env="models", box="Encoder"),
    Kind("train_generator", "extras.generation.training:run", TrainGeneratorParams, env="models", threads="all",
        retries=2, gpu=("start",), ranks=True, box="Training", holds="training", verb="training"),
    Kind("generated", "extras.generation.texts:run", GeneratedParams, env="models", threads="all", retries=2,
        gpu=("generator",), shard="extras.generation.texts:run_shard", part=Part(PASSAGES_PER_PART, "passages"),
        box="Collection", verb="generating"),
    Kind("score_generated", "extras.generation.scores:run", ScoreGeneratedParams, env="models", threads="all",
        retries=2, gpu=("model",), shard="extras.generation.scores:run_shard",
        part=Part(TEXTS_PER_PART, "texts"), box="Re-ranking", verb="scoring"),
    Kind("expansion", "extras.generation.runs:run", ExpansionParams, box="Sparse search"),
)  # fmt: skip
