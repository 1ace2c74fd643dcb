"""Encoders, token ids, pre-training and training."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from tandem.config.base import Model, Names, PairPooling, problem
from tandem.config.encoders import CoCondenserTrain, Masking, RetroMaeTrain, Spans
from tandem.config.training import CrossTrain, Distil, DualTrain, JointTrain, Lora
from tandem.config.validation import parse
from tandem.stages.base import Kind, Params

STARTS = ("start", "retriever", "reranker")


class EncoderParams(Params):
    """A published encoder, copied and checked."""

    source: Literal["package", "folder", "hub"] = Field(description="where it comes from")
    package: str | None = Field(None, description="of source package: import name of the Python package")
    folder: str | None = Field(None, description="of source package: the folder within it")
    name: str | None = Field(None, description="of source hub: organisation/name")
    revision: str | None = Field(None, description="of source hub: the commit")
    sha256: str | None = Field(None, description="of its weights, which must match")
    layers: int | None = Field(None, ge=1, description="keep this many of its first layers; null: all")


class VocabularyParams(Params):
    """An untrained encoder with a WordPiece tokenizer of its own."""

    vocabulary: int = Field(ge=100, description="pieces of the tokenizer")
    lowercase: bool = Field(description="texts are lowercased")
    layers: int = Field(ge=0, description="transformer layers; 0: a bag of words' vectors")
    hidden: int = Field(ge=1, description="dimension of the states")
    heads: int = Field(ge=1, description="attention heads")
    feed_forward: int = Field(ge=1, description="dimension within the feed-forward layers")
    positions: int = Field(ge=8, description="longest input, special tokens included")
    seed: int = Field(description="seed of the random weights")


class TokensParams(Params):
    """Token ids of a dataset's passages and queries."""

    query_length: int = Field(ge=1, description="longest query, in tokens without special ones")
    passage_length: int = Field(ge=1, description="longest passage, likewise")


class Vectors(Params):
    """How a text's vector is made and compared."""

    pooling: PairPooling = Field("cls", description="from the tokens' states; segments: of cross-encoders alone")
    normalize: bool = Field(False, description="vectors of length 1")
    temperature: float = Field(1.0, gt=0, description="divides the scores")


class PretrainParams(Vectors):
    """Pre-training of an encoder from a corpus alone."""

    objective: Literal["crop", "mlm", "retromae", "cocondenser"] = Field(description="what is learned")
    train: Spans | Masking | RetroMaeTrain | CoCondenserTrain = Field(description="how it learns; the seed is set")

    @field_validator("train", mode="before")
    @classmethod
    def _by_objective(cls, value: Any, info: ValidationInfo) -> Any:
        return by_objective(value, info, PRETRAININGS)


class Distillation(Distil):
    """Distillation from a teacher whose scores are an input of the stage."""

    from_: Names = Field((), alias="from", description="unused: the teacher is an input")


class DualTraining(DualTrain):
    """How a dual encoder is trained; the seed is set."""

    distil: Distillation | None = Field(None, description="learn from the input `teacher` too")


class CrossTraining(CrossTrain):
    """How a cross-encoder is trained; the seed is set."""

    distil: Distillation | None = Field(None, description="learn from the input `teacher` too")


class ModelParams(Vectors):
    """Training of a dual encoder, a cross-encoder, or both together."""

    objective: Literal["dual", "cross", "joint"] = Field(description="what is learned")
    shared: bool = Field(True, description="one tower for both sides of a dual encoder")
    lora: Lora | None = Field(None, description="learn low-rank adapters instead of all weights")
    until: tuple[int, int] | None = Field(None, description="of a checkpoint: its number, and how many there are")
    train: DualTraining | CrossTraining | JointTrain = Field(description="how it is trained")

    @field_validator("train", mode="before")
    @classmethod
    def _by_objective(cls, value: Any, info: ValidationInfo) -> Any:
        return by_objective(value, info, TRAININGS)


def by_objective(value: Any, info: ValidationInfo, types: Mapping[str, type[Model]]) -> Any:
    """A mapping as the model of its objective, so that mistakes name that model's keys."""
    model = types.get(str(info.data.get("objective")))
    if model is None or not isinstance(value, Mapping):
        return value
    result, lines = parse(model, value)
    if result is None:
        raise problem(f".{lines[0]}")
    return result


PRETRAININGS: dict[str, type[Model]] = {
    "crop": Spans,
    "mlm": Masking,
    "retromae": RetroMaeTrain,
    "cocondenser": CoCondenserTrain,
}
TRAININGS: dict[str, type[Model]] = {"dual": DualTraining, "cross": CrossTraining, "joint": JointTrain}

ENCODER = Kind(name="encoder", run="models.hub:run", params=EncoderParams, env="models", box="Encoder")
VOCABULARY = Kind(
    name="vocabulary", run="extras.pretraining.vocabulary:run", params=VocabularyParams, env="models", threads="all",
    box="Encoder",
)  # fmt: skip
TOKENS = Kind(
    name="tokens", run="models.tokens:run", params=TokensParams, env="models", threads="all", box="Encoder"
)  # fmt: skip
PRETRAIN = Kind(
    name="pretrain", run="extras.pretraining.stage:run", params=PretrainParams, env="models", threads="all", retries=2,
    gpu=STARTS, ranks=True, box="Encoder",
)  # fmt: skip
MODEL = Kind(
    name="model", run="training.stage:run", params=ModelParams, env="models", threads="all", retries=2, gpu=STARTS,
    ranks=True, box="Training",
)  # fmt: skip
CHECKPOINT = Kind(
    name="checkpoint", run="training.stage:run", params=ModelParams, env="models", threads="all", retries=2,
    gpu=STARTS, ranks=True, box="Training",
)  # fmt: skip

KINDS = (ENCODER, VOCABULARY, TOKENS, PRETRAIN, MODEL, CHECKPOINT)
