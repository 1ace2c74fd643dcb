"""Encoders, token ids and training."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import not_
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from tandem.config.base import Model, PairPooling, Section, add_key, problem
from tandem.config.encoders import EncoderFiles
from tandem.config.models import CrossModel
from tandem.config.parsing import parse
from tandem.config.references import Parameters, parameters_of
from tandem.config.representations import AnyRepresentation, Single, is_single
from tandem.config.training import FITS, CrossTrain, DualTrain, JointTrain, Lora
from tandem.errors import UserError
from tandem.plugins import Declarations
from tandem.stages.base import Entry, Kind, Params, Part

_STARTS = ("start", "retriever", "reranker")
# What packages write next to the weights of a trained model, by name: a function of a part's folder, the job, its token
# ids, the last state of the training, the number of lists, and the sizes that followed from the data.
PART_NOTES: Declarations[Entry] = Declarations()
# By role of an input of a model's stage: a function of the job, which writes the model from that input instead of
# training it.
MODEL_SOURCES: Declarations[Entry] = Declarations()
# By name: a function of a model's job, its lists, the known positives and the numbered collection. It returns an
# observer of the training (`training.loop.Watch`), or None.
WATCHES: Declarations[Entry] = Declarations()
# What packages find in a finished training, by name: a function of the model's parameters, how it was trained, its log
# and its lists. It returns facts and warnings.
OUTCOMES: Declarations[Entry] = Declarations()


class EncoderParams(EncoderFiles, Params):
    """A published encoder, copied and checked."""

    files_sha256: str | None = Field(
        None,
        exclude_if=not_,
        description="of source folder: sha256 of its files except the weights",
    )


class TokensParams(Params):
    """Token ids of a dataset's passages and queries."""

    query_length: int = Field(ge=1, description="longest query, in tokens without special ones")
    passage_length: int = Field(ge=1, description="longest passage, likewise")
    prompts: dict[str, str] = Field(
        {}, exclude_if=not_, description="in front of a side's texts: query, passage"
    )
    markers: dict[str, str] = Field(
        {}, exclude_if=not_, description="tokens in front of a side's prompts, likewise"
    )
    titled: bool = Field(
        False, exclude_if=not_, description="title and text are two segments with a separator"
    )
    pair_length: int | None = Field(
        None, exclude_if=not_, description="longest pair, with special tokens; null: any"
    )


class Vectors(Params):
    """How a text's vector is made and compared."""

    representation: AnyRepresentation = Field(
        Single(), exclude_if=is_single, description="what a text becomes"
    )
    pooling: PairPooling = Field(
        "cls",
        description="how the tokens' states are pooled; segments, classifier and decoder: only for cross-encoders",
    )
    normalize: bool = Field(False, description="vectors of length 1")
    temperature: float = Field(1.0, gt=0, description="divides the scores")
    prompts: dict[str, str] = Field(
        {}, exclude_if=not_, description="in front of a side's texts: query, passage"
    )
    dim: int | None = Field(
        None, ge=1, exclude_if=not_, description="numbers of a vector that are kept; null: all"
    )
    dense: tuple[str, ...] = Field(
        (), exclude_if=not_, description="folders of linear layers behind the pooling"
    )


class UntrainedParams(Vectors):
    """An encoder as a dual encoder of one tower, before any training."""


class Learning(Vectors):
    """Base of trainings: `train` is read by the model of the objective, so that mistakes name that model's keys."""

    trains: ClassVar[Mapping[str, type[Model]]]

    @field_validator("train", mode="before", check_fields=False)
    @classmethod
    def _by_objective(cls, value: Any, info: ValidationInfo) -> Any:
        model = cls.trains.get(str(info.data.get("objective")))
        if model is None or not isinstance(value, Mapping):
            return value
        result, lines = parse(model, value)
        if result is None:
            raise problem(f".{lines[0]}")
        return result


class ModelParams(Learning):
    """Training of a dual encoder, a cross-encoder, or both together."""

    trains: ClassVar = {
        "dual": parameters_of(DualTrain),
        "cross": parameters_of(CrossTrain),
        "joint": JointTrain,
    }

    objective: Literal["dual", "cross", "joint"] = Field(description="what is learned")
    shared: bool = Field(True, description="one tower for both sides of a dual encoder")
    query_layers: int | None = Field(
        None,
        ge=1,
        exclude_if=not_,
        description="layers of the query's tower, the encoder's first; null: all",
    )
    prompt: str | None = Field(
        None, exclude_if=not_, description="of a cross-encoder: the words around its texts"
    )
    words: tuple[str, ...] = Field(
        (), exclude_if=not_, description="of pooling decoder: the words whose logits score"
    )
    compares: bool = Field(
        False, exclude_if=not_, description="a cross-encoder that reads two passages"
    )
    lora: Lora | None = Field(None, description="learn low-rank adapters instead of all weights")
    one_list: bool = Field(
        False, exclude_if=not_, description="all lists of a query are merged into one"
    )
    until: tuple[int, int] | None = Field(
        None, description="of a checkpoint: its number, and the number of checkpoints"
    )
    train: Parameters[DualTrain] | Parameters[CrossTrain] | JointTrain = Field(
        description="how it is trained"
    )


@dataclass(frozen=True)
class CrossForm:
    """Describe a form of cross-encoders that a key of their entries chooses; its `cross.json` has the key, too.

    Attributes:
        options: the key's section.
        description: of the key.
        start: `(cross, options) -> CrossEncoder` makes a cross-encoder of this form from a plain one.
        load: `(folder) -> CrossEncoder` loads what such a model's `save` wrote.
        open_tokens: `(tokens) -> Tokens` of the passages that lists and runs name.
        check_tokens: `(job, tokens, folder)` refuses an artifact whose texts the model in the folder does not read.
        find_texts: `(ctx, name, data, where) -> dataset` whose texts the model reads to score the passages of `data`.
        check_entry: `(ctx, at, entry, params)` refuses what does not fit, also of cross-encoders without the key.
    """

    options: type[Section]
    description: str
    start: Entry
    load: Entry
    open_tokens: Entry
    check_tokens: Entry
    find_texts: Entry
    check_entry: Entry


CROSS_FORMS: Declarations[CrossForm] = Declarations()


def register_cross_form(name: str, form: CrossForm) -> None:
    """Add a form of cross-encoders, and its key to their entries and parameters; a `UserError` if the key is taken."""
    if name in CrossModel.model_fields or name in ModelParams.model_fields:
        raise UserError(f"key {name} of cross-encoders is registered twice; rename one of them")
    CROSS_FORMS[name] = form
    add_key(CrossModel, name, form.options, form.description)
    add_key(ModelParams, name, parameters_of(form.options), form.description)


def find_form(section: CrossModel | ModelParams) -> str | None:
    """Return the form of an entry or of parameters; None if it is not a cross-encoder of such a form."""
    return next((name for name in CROSS_FORMS if getattr(section, name, None) is not None), None)


KINDS = (
    Kind("encoder", "models.published:run", EncoderParams, env="models", box="Encoder", holds="encoder",
        verb="loading"),
    Kind("tokens", "models.tokenisation:run", TokensParams, version=2, env="models", threads="all",
        shard="models.tokenisation:run_shard", part=Part(1 << 18, "passages"), box="Encoder", holds="tokens",
        verb="tokenizing"),
    Kind("untrained", "training.stage:run_untrained", UntrainedParams, env="models", box="Encoder"),
    Kind("reranker", "models.cross:run_reranker", Params, env="models", box="Encoder"),
    Kind("model", "training.stage:run", ModelParams, env="models", threads="all", retries=2, gpu=_STARTS, ranks=True,
        box="Training", holds="training", rule="train", verb="training",
        additions=(FITS, OUTCOMES, PART_NOTES, WATCHES)),
)  # fmt: skip
