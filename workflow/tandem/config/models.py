"""The models that are trained: what they learn and start from, their training lists, and how they are validated."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from tandem.config.base import PairPooling, Pooling, Section, by_value, problem
from tandem.config.candidates import Candidates
from tandem.config.optimisation import Lora
from tandem.config.representations import AnyRepresentation, Named
from tandem.config.training import CrossTrain, DualTrain, JointTrain, RankGroup, Train


class Validation(Section):
    """How models are validated: each checkpoint by other jobs (`train.checkpoints`), else within the training."""

    from_: str | None = Field(
        None, alias="from", description="run whose top is validated on; null: that of the negatives, else bm25"
    )
    depth: int = Field(100, ge=1, description="its passages per query in the reduced corpus, beside all relevant ones")
    others: int = Field(0, ge=0, description="further passages per query, drawn by a hash of their ids")
    queries: int | None = Field(None, ge=1, description="number of dev queries, chosen by their ids' hash; null: all")
    method: Literal["retrieval", "average_rank"] = Field("retrieval", description="of dual encoders; others re-rank")
    part: Literal["dual", "cross"] = Field("dual", description="which part of a joint model decides what is best")
    measure: str = Field("RR@10", description="of retrieval and re-ranking")

    def overridden(self, own: "Validation") -> Self:
        """This with the keys that a model's own `validation` sets."""
        return self.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})


class ValidationSettings(Validation):
    """The configuration's `validation`, which models override key by key."""

    fidelity: bool = Field(False, description="compare validation with the full corpus in the report, which waits")


class TrainedModel(Section):
    """An entry of `models`: what all objectives share."""

    dataset: str | None = Field(None, description="trained on; null: `train_on`; searched: what is searched")
    lora: Lora | None = Field(None, description="learn low-rank adapters instead of all weights; merged when saved")
    candidates: Candidates = Field(description="where the training lists come from")
    validation: Validation = Field(Validation(), description="what differs from the configuration's `validation`")

    @model_validator(mode="after")
    def _adapters_or_layers(self) -> Self:
        train: Train | None = getattr(self, "train", None)
        if self.lora and train and train.freeze_layers:
            raise problem(
                f".train.freeze_layers is {train.freeze_layers}, but lora freezes every layer; leave one of the two out"
            )
        return self

    @model_validator(mode="after")
    def _lists_reach_the_groups(self) -> Self:
        groups: Sequence[RankGroup] = getattr(getattr(self, "train", None), "groups", ())
        drawn = self.candidates
        most = 1 + (drawn.negatives or drawn.depth - drawn.first_rank + 1)
        if groups and not drawn.also and groups[-1].last_rank > most:
            raise problem(
                f".train.groups end at rank {groups[-1].last_rank}, but lists have at most {most} passages; "
                "lower last_rank, or widen candidates"
            )
        return self


class DualModel(TrainedModel):
    """A dual encoder: queries and passages get vectors."""

    objective: Literal["dual"] = Field(description="what is learned")
    init: str = Field("encoder", description="`encoder` (the configuration's), another encoder, or a model")
    representation: Annotated[AnyRepresentation | None, Named] = Field(
        None, description="what a text becomes, by name or with options; null: as in the start, else single"
    )
    shared: bool | None = Field(None, description="one tower for both sides; null: true")
    pooling: Pooling | None = Field(None, description="null: the encoder's, else cls")
    normalize: bool | None = Field(None, description="vectors of length 1; null: the encoder's, else false")
    temperature: float | None = Field(None, gt=0, description="divides the scores; null: the encoder's, else 1")
    train: DualTrain = Field(DualTrain(), description="how it is trained")


class CrossModel(TrainedModel):
    """A cross-encoder: scores pairs of a query and a passage."""

    objective: Literal["cross"] = Field(description="what is learned")
    init: str = Field("encoder", description="`encoder` (the configuration's), another encoder, a model or re-ranker")
    pooling: PairPooling | None = Field(
        None,
        description="null: the start's, else cls; segments: cosine of the query's and the passage's mean state; "
        "classifier: the family's own classification head, which a re-ranker has",
    )
    train: CrossTrain = Field(CrossTrain(), description="how it is trained")


class JointInit(Section):
    """What a joint training starts from."""

    retriever: str = Field(description="a dual encoder")
    reranker: str = Field(description="a cross-encoder or re-ranker")


class JointModel(TrainedModel):
    """A dual encoder and a cross-encoder that learn together: RocketQAv2."""

    objective: Literal["joint"] = Field(description="what is learned")
    init: JointInit = Field(description="what it starts from")
    train: JointTrain = Field(JointTrain(), description="how both are trained")


ModelEntry = DualModel | CrossModel | JointModel
OBJECTIVES: dict[str, type[ModelEntry]] = by_value("objective", *get_args(ModelEntry))
