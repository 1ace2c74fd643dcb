"""The models that are trained: losses and their options, optimisation, validation."""

from operator import not_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from tandem.config.base import (
    Count,
    Items,
    Names,
    PairPooling,
    Pooling,
    Precision,
    Section,
    by_value,
    choice,
    is_one,
    problem,
)
from tandem.config.candidates import Candidates
from tandem.config.losses import check_options, distillation, supervision
from tandem.errors import UserError
from tandem.registry import Registry

if TYPE_CHECKING:
    Supervision = str
    Distillation = str
else:
    Supervision = choice(supervision)
    Distillation = choice(distillation)


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


class TakesLosses(Section):
    """A section that names losses: the options of a plugin's loss that have no key of their own."""

    losses: ClassVar[tuple[tuple[str, Registry[Any]], ...]] = ()

    loss_options: dict[str, bool | int | float | str] = Field(
        {}, description="option → value, of a loss that a plugin registers: its keyword-only parameters"
    )

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        try:
            check_options(self, [(registry, getattr(self, key)) for key, registry in self.losses])
        except UserError as error:
            raise problem(f".{error}") from None
        return self


class Distil(TakesLosses):
    """Learning from a teacher's scores of the training lists as well."""

    losses = (("loss", distillation),)

    from_: Names = Field(
        alias="from", description="cross-encoders (mean of logits), runs with scores, or several of both"
    )
    weights: Items[Annotated[float, Field(gt=0)]] | None = Field(
        None, exclude_if=not_, description="of several teachers, in the order of `from`; null: equal"
    )
    normalize: Literal["none", "z_score", "min_max"] | None = Field(
        None,
        exclude_if=not_,
        description="of each teacher's scores within a list, before they are averaged; null: none, without runs",
    )
    loss: Distillation = Field("paper", description="distance between the teacher's and the model's scores")
    temperature: float = Field(1.0, gt=0, description="of both softmaxes in kl, kl_t2, kl_elementwise, kl_reverse")
    margin: float = Field(1.0, ge=0, description="of hinge, in the unit of the scores")
    weight: float = Field(1.0, gt=0, description="weight of the distillation")
    supervision: float = Field(1.0, ge=0, description="weight of `train.loss`; 0: the teacher alone")


class VectorWeights(Section):
    """Weights of the regularisers of one side's vectors."""

    flops: float = Field(0.0, ge=0, description="weight of the FLOPS regulariser")
    l1: float = Field(0.0, ge=0, description="weight of the L1 norm")


class Regularise(Section):
    """Regularisers of the vectors."""

    query: VectorWeights | None = Field(None, description="of the queries' vectors")
    passage: VectorWeights | None = Field(None, description="of the passages' vectors")
    ramp: int = Field(0, ge=0, description="steps over which the weights grow quadratically; 0: full at once")


def _unless_all(value: object) -> object:
    return None if value == "all-linear" else value


class Lora(Section):
    """Low-rank adapters."""

    rank: int = Field(8, ge=1, description="rank of the adapters")
    alpha: float = Field(16.0, gt=0, description="the adapters are scaled by alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout before the adapters")
    targets: Annotated[
        Items[str] | None,
        Field(min_length=1),
        BeforeValidator(_unless_all, json_schema_input_type=list[str] | Literal["all-linear"] | None),
    ] = Field(None, description="names of linear layers; null or all-linear: all")


class Optimisation(Section):
    """Optimiser, schedule, duration: what trainings and pre-trainings share."""

    epochs: float = Field(1.0, gt=0, description="passes over the training data")
    steps: int | None = Field(None, ge=1, description="optimiser steps; null: as many as `epochs` takes")
    lr: float = Field(1e-5, gt=0, description="peak learning rate")
    optimizer: Literal["adamw", "adam"] = Field("adamw", description="update rule")
    weight_decay: float = Field(0.01, ge=0, description="weight decay, not of biases and layer norms")
    warmup: float = Field(0.1, ge=0, le=1, description="share of the steps over which the learning rate rises")
    schedule: Literal["linear", "constant"] = Field("linear", description="of the learning rate after the warm-up")
    clip: float | None = Field(1.0, gt=0, description="largest norm of the gradient; null: any")
    dropout: float | None = Field(None, ge=0, lt=1, description="null: the encoder's own")
    precision: Precision = Field("auto", description="of the computation; auto: bf16 where the device has it")
    seed: int | None = Field(None, description="null: the configuration's")


class Train(Optimisation):
    """How a model is trained: what all objectives share."""

    queries_per_batch: int = Field(32, ge=1, description="queries per step, over all devices")
    list_size: int = Field(2, ge=2, description="passages per query: positives and negatives")
    positives: int = Field(
        1, ge=1, exclude_if=is_one, description="positives of a list, drawn anew at each visit; the loss is their mean"
    )
    budget_minutes: float | None = Field(
        None, gt=0, description="as many steps as fit, of two CPU cores, at most 20 epochs; null: `steps` or `epochs`"
    )
    sizes: Literal["given", "data"] = Field(
        "given",
        exclude_if=lambda value: value == "given",
        description="data: list_size, queries_per_batch and lr follow from the data and budget_minutes",
    )
    choose: Literal["dev", "last"] = Field("dev", description="dev: the best checkpoint, the start too; last: the end")
    patience: int | None = Field(3, ge=1, description="of `choose: dev`: end after so many validations without a gain")
    checkpoints: int | None = Field(None, ge=1, description="train in this many stages, each validated during the next")
    validate_every: int | None = Field(
        None, ge=1, description="steps between validations; null: a tenth of all where `choose` is dev, else none"
    )
    validation_queries: int = Field(100, ge=1, description="queries validated on, without `checkpoints`")
    validation_depth: int = Field(20, ge=1, description="passages per query validated on, without `checkpoints`")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.sizes == "data" and self.budget_minutes is None:
            raise problem(".sizes is data, but there is no budget_minutes, which decides how much is learned")
        if self.positives >= self.list_size:
            raise problem(f".positives is {self.positives}, but lists have {self.list_size} passages; raise list_size")
        return self


class SingleTrain(Train, TakesLosses):
    """How one model is trained, unlike two together."""

    losses = (("loss", supervision),)

    margin: float = Field(1.0, ge=0, description="of hinge, in the unit of the scores")
    distil: Distil | None = Field(None, description="learn from a teacher's scores of the lists too")


class DualTrain(SingleTrain):
    """How a dual encoder is trained."""

    loss: Supervision = Field("listwise", description="loss of each query's list")
    in_batch: bool = Field(True, description="the other queries' passages are negatives too")
    passage_centric: float = Field(0.0, ge=0, le=1, description="PAIR's α, weight of the passage-centric loss")
    regularise: Regularise | None = Field(None, description="regularisers of the vectors")
    matryoshka: Items[Count] = Field(
        (), exclude_if=not_, description="the loss also of vectors cut to so many numbers: [256, 128]"
    )

    @model_validator(mode="after")
    def _one_centre(self) -> Self:
        if self.passage_centric and self.positives > 1:
            raise problem(f".positives is {self.positives}, but passage_centric is about one positive; set it to 1")
        return self


class CrossTrain(SingleTrain):
    """How a cross-encoder is trained."""

    loss: Supervision = Field("pointwise", description="loss of each query's list")
    in_batch: bool = Field(False, description="lists are lengthened by the other queries' positives")


class JointTrain(Train, TakesLosses):
    """How a retriever and a re-ranker are trained together."""

    losses = (("semantics", distillation), ("supervision", supervision))

    semantics: Distillation = Field("paper", description="how the retriever learns from the re-ranker; paper: both do")
    temperature: float = Field(1.0, gt=0, description="of both softmaxes, where `semantics` is a kl with one")
    teacher: Literal["dynamic", "static"] = Field("dynamic", description="static: the re-ranker does not learn")
    supervision: Supervision = Field("listwise", description="the re-ranker's loss on the labels")
    margin: float = Field(1.0, ge=0, description="of hinge, in the unit of the scores")
    in_batch: bool = Field(False, description="lists are lengthened by the other queries' positives")


class TrainedModel(Section):
    """An entry of `models`: what all objectives share."""

    dataset: str | None = Field(None, description="trained on; null: `train_on`; searched: what is searched")
    lora: Lora | None = Field(None, description="learn low-rank adapters instead of all weights; merged when saved")
    candidates: Candidates = Field(description="where the training lists come from")
    validation: Validation = Field(Validation(), description="what differs from the configuration's `validation`")


class DualModel(TrainedModel):
    """A dual encoder: queries and passages get vectors."""

    objective: Literal["dual"] = Field(description="what is learned")
    init: str = Field("encoder", description="`encoder` (the configuration's), another encoder, or a model")
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
