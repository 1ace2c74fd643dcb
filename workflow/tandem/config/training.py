"""How models are trained: optimiser, steps, lists, losses, by the objective that is learned."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import BeforeValidator, Field, model_validator

from tandem.config.base import (
    Choice,
    Count,
    Distinct,
    IfSet,
    Items,
    Precision,
    Section,
    equals,
    is_one,
    problem,
)
from tandem.config.losses import (
    OWN_LOSSES,
    Distil,
    Distillation,
    Regularise,
    Supervision,
    TakesLosses,
    distillation,
    supervision,
)
from tandem.config.references import Reference
from tandem.plugins import Declarations

DualLoss = Annotated[str, Choice(supervision, OWN_LOSSES)]


_Code = TypeVar("_Code")
_TAUGHT = "distil"
_TEACHING_KEYS = ("distil", "margin_bins", "groups")  # of `SingleTrain`, of teachers' scores
_TERM_KEYS = ("passage_centric", "regularise")  # of `DualTrain`: each is an entry of `BATCH_TERMS`
_OBJECTIVE_KEYS = ("live_negatives",)  # of `DualTrain`: each is an entry of `OWN_OBJECTIVES`


# By key of `DualTrain`: `module:function` of `(train, state, terms)` that returns the terms of a batch's loss with its
# own. `state` is what they are computed from (`training.objectives.dual.InBatch`).
BATCH_TERMS: Declarations[str] = Declarations(keys=_TERM_KEYS)
# By name: `module:function` of groups of parameters and the peak learning rate that returns an optimiser.
OPTIMIZERS: Declarations[str] = Declarations(
    (name, f"training.optimizer:make_{name}") for name in ("adamw", "adam")
)
# By name: `module:function` of what is learned (`dual`, `cross`, `joint`), the objective, the lists and `train`. It
# returns `train` with the values that follow from these. `budget_minutes` needs the name `budget`.
FITS: Declarations[str] = Declarations()
# By key of `DualTrain`, which is also the role of an input: `module:function` of a model's job and the rows of queries.
# It returns how an epoch's instances are arranged (`training.instances.Instances`).
ARRANGEMENTS: Declarations[str] = Declarations(keys=("topics",))


@dataclass(frozen=True)
class OwnObjective:
    """Describe the objective that replaces that of a model's lists if a key is set.

    The key is one of `DualTrain`, or one of a cross-encoder's entry.

    Attributes:
        start: `module:function` of `(job, model, tokens, train, positives, budget, world)` that returns the objective.
        check: refuses what does not fit, by `problem`; its argument is the section that has the key.
        chance: its loss if all scores are equal; None: that of the lists.
    """

    start: str
    check: Callable[[Any], None]
    chance: float | None = None


OWN_OBJECTIVES: Declarations[OwnObjective] = Declarations(keys=(*_OBJECTIVE_KEYS, "compares"))


def register_own_objective(key: str, objective: OwnObjective) -> None:
    """Add the objective if a key is set; `@plans_objective` (`tandem.plan.context`) plans that of a dual encoder."""
    OWN_OBJECTIVES[key] = objective


@dataclass(frozen=True)
class TeachingCode:
    """Describe how `distil` is learned, each piece of code as `module:name`.

    Attributes:
        loss: `(train) -> training.objectives.ListLoss`, which learns from the scores of a batch's lists.
        in_batch: `(job, train) -> training.objectives.dual.BatchTeacher`, for `distil.in_batch`.
        draws: `(train) -> (draw, labels)` of `training.instances.Instances`, for `margin_bins` and `groups`.
        check: refuses what does not fit, by `problem`.
    """

    loss: str
    in_batch: str
    draws: str
    check: "Callable[[SingleTrain], None]"


# By key of `DualTrain`: `module:function` of `(job, train)` that returns a `training.objectives.dual.QueryCopies`.
QUERY_COPIES: Declarations[str] = Declarations(keys=("self_teaching",))


def register_query_copies(key: str, start: str) -> None:
    """Add what a dual encoder learns from copies of a batch's queries if a key is set."""
    QUERY_COPIES[key] = start


TEACHING: Declarations[TeachingCode] = Declarations()  # under the one name `distil`


def register_teaching(code: TeachingCode) -> None:
    """Set the code by which a teacher's scores are learned."""
    TEACHING[_TAUGHT] = code


@dataclass(frozen=True)
class AdapterCode:
    """Describe how encoders learn if a key of a model is set, each piece of code as `module:function`.

    Attributes:
        add: `(models, options)` that freezes the encoders among models and adds weights that learn in their place.
        save: `(encoder, folder)` that returns the plain encoder that is saved; it may write more into the folder.
        mark: the attribute of layers to which the code has been added.
    """

    add: str
    save: str
    mark: str


# By key of models' entries.
ADAPTERS: Declarations[AdapterCode] = Declarations(keys=("lora",))


def register_adapters(key: str, code: AdapterCode) -> None:
    """Add how encoders learn if a key of a model is set."""
    ADAPTERS[key] = code


def find_code(codes: Mapping[str, _Code], name: str, key: str) -> _Code:
    """Return what a package has registered under a name for a key that is set; refuse the key if nothing is."""
    if name not in codes:
        raise problem(
            f".{key}: nothing learns by it; leave the key out, or load a plugin that does"
        )
    return codes[name]


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
        BeforeValidator(
            _unless_all, json_schema_input_type=list[str] | Literal["all-linear"] | None
        ),
    ] = Field(None, description="names of linear layers; null or all-linear: all")
    bits: IfSet[Literal[4] | None] = Field(
        None,
        description="of a weight that does not learn: 4 as in QLoRA (NF4, by bitsandbytes); null: its own",
    )

    @model_validator(mode="after")
    def _has_code(self) -> Self:
        if "lora" not in ADAPTERS:
            raise problem(
                ": nothing learns adapters; leave the key out, or load a plugin that does"
            )
        return self


class Optimisation(Section):
    """Optimiser, schedule, duration: what trainings and pre-trainings share."""

    epochs: float = Field(1.0, gt=0, description="passes over the training data")
    steps: int | None = Field(
        None, ge=1, description="optimiser steps; null: as many as `epochs` takes"
    )
    lr: float = Field(1e-5, gt=0, description="peak learning rate")
    optimizer: Annotated[str, Choice(OPTIMIZERS)] = Field("adamw", description="update rule")
    weight_decay: float = Field(
        0.01, ge=0, description="weight decay, not of biases and layer norms"
    )
    warmup: float = Field(
        0.1, ge=0, le=1, description="share of the steps over which the learning rate rises"
    )
    schedule: Literal["linear", "linear_from_start", "constant"] = Field(
        "linear",
        description="after the warm-up; linear_from_start: the fall to zero counts the warm-up's steps too",
    )
    clip: float | None = Field(1.0, gt=0, description="largest norm of the gradient; null: any")
    dropout: float | None = Field(None, ge=0, lt=1, description="null: the encoder's own")
    precision: Precision = Field(
        "auto", description="of the computation; auto: bf16 where that is faster"
    )
    seed: int | None = Field(None, ge=0, description="null: the configuration's")


class PartTrain(Section):
    """Values of one part of a joint training, instead of those of both."""

    lr: float | None = Field(None, gt=0, description="peak learning rate; null: that of both")
    dropout: float | None = Field(None, ge=0, lt=1, description="null: that of both")


class Train(Optimisation):
    """How a model is trained: what all objectives share."""

    queries_per_batch: int = Field(
        32, ge=1, description="lists (see `instance`) per step, over all devices"
    )
    list_size: int = Field(2, ge=2, description="passages per query: positives and negatives")
    positives: int = Field(
        1,
        ge=1,
        exclude_if=is_one,
        description="positives of a list, drawn anew at each visit; the loss is their mean",
    )
    budget_minutes: float | None = Field(
        None,
        gt=0,
        description="minutes of two CPU cores for steps and validations, at most 20 epochs; null: `steps` or `epochs`",
    )
    freeze_layers: IfSet[int] = Field(
        0,
        ge=0,
        description="the embeddings and this many of the lowest layers of each encoder do not learn; 0: all learn",
    )
    sizes: Literal["given", "data"] = Field(
        "given",
        exclude_if=equals("given"),
        description="data: list_size, queries_per_batch and lr follow from the data and budget_minutes",
    )
    choose: Literal["dev", "last"] = Field(
        "dev", description="dev: the best checkpoint, the start too; last: the end"
    )
    patience: int | None = Field(
        3, ge=1, description="of `choose: dev`: end after this many validations without a gain"
    )
    checkpoints: int | None = Field(
        None, ge=1, description="train in this many stages, each validated during the next"
    )
    validate_every: int | None = Field(
        None,
        ge=1,
        description="steps between validations; null: a tenth of all steps where `choose` is dev, more where a budget "
        "pays for fewer validations; else there are none",
    )
    validation_queries: int = Field(
        100, ge=1, description="queries that a training validates itself on"
    )
    validation_depth: int = Field(20, ge=1, description="passages of each of these queries")

    @property
    def visit_size(self) -> int:
        """Passages of an instance."""
        return self.list_size

    @property
    def validates(self) -> bool:
        """Whether a training validates itself while it runs; with `checkpoints` other jobs do."""
        return self.validate_every is not None or (self.choose == "dev" and not self.checkpoints)

    @property
    def undecisive(self) -> tuple[str, ...]:
        """Keys that decide nothing here, so that their values are no part of a model's key.

        With `budget_minutes`, `steps` and `epochs` decide nothing; with `sizes: data`, nor do the sizes of batches and
        the learning rate. Validations have keys only if `validates`, and `patience` counts only with `choose: dev`.
        (`epochs` stays a part of the key if `steps` decides, since recipes have both.)
        """
        keys: list[str] = []
        if self.budget_minutes is not None:
            keys += ["steps", "epochs"]
        if self.sizes == "data":
            keys += ["lr", "queries_per_batch"]
            if self.positives == 1:  # else `list_size` must be larger than them
                keys += ["list_size"]
        if not self.validates:
            keys += ["validation_queries", "validation_depth"]
        if self.choose == "last":
            keys += ["patience"]
        return tuple(keys)

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.sizes == "data" and self.budget_minutes is None:
            raise problem(
                ".sizes is data, but there is no budget_minutes, which decides how much is learned"
            )
        if self.budget_minutes is not None:
            find_code(FITS, "budget", "budget_minutes")
        if self.positives >= self.list_size:
            raise problem(
                f".positives is {self.positives}, but lists have {self.list_size} passages; raise list_size"
            )
        return self


class RankGroup(Section):
    """A range of a list's ranks under its teacher, and how many of its passages a visit draws."""

    last_rank: int = Field(ge=1, description="where it ends; it begins after the group before")
    passages: int = Field(ge=1, description="how many are drawn; of the first group all")


class SingleTrain(Train, TakesLosses):
    """How a single model is trained, as opposed to two together."""

    losses = (("loss", supervision),)

    instance: Literal["query", "positive", "row"] = Field(
        "query",
        exclude_if=equals("query"),
        description="visited once an epoch: each query, each positive, or each row of a release (docs/fidelity.md)",
    )
    resample: bool = Field(
        True,
        exclude_if=bool,
        description="draw negatives anew at each visit; false: a positive keeps its own (not for instance: query)",
    )
    margin: float = Field(1.0, ge=0, description="of hinge, in the unit of the scores")
    distil: Distil | None = Field(
        None, description="learn from a teacher's scores of the lists too"
    )
    margin_bins: IfSet[int | None] = Field(
        None,
        ge=2,
        description="draw negatives evenly from this many ranges of the teacher's margins",
    )
    groups: IfSet[Items[RankGroup]] = Field(
        (),
        description="draw a list by its ranks under the teacher, the positive first, and learn their order instead of "
        "scores: within the first group, and between groups (CL-DRD)",
    )

    @model_validator(mode="after")
    def _instances_fit(self) -> Self:
        if self.instance != "query" and self.positives > 1:
            raise problem(
                f".positives is {self.positives}, but an instance of a {self.instance} has one; set it to 1"
            )
        if self.instance == "query" and not self.resample:
            raise problem(
                ".resample is false, but instance is query; set candidates.negatives instead, which stay"
            )
        return self

    @model_validator(mode="after")
    def _teaching_fits(self) -> Self:
        key = next((key for key in _TEACHING_KEYS if getattr(self, key)), None)
        if key is not None:
            find_code(TEACHING, _TAUGHT, key).check(self)
        return self


class Topics(Section):
    """Clusters of the training queries, for batches whose queries are about the same (TAS)."""

    by: Annotated[str, Reference("topics")] = Field(
        "encoder", description="the dual encoder whose vectors of queries are clustered"
    )
    clusters: int = Field(2000, ge=2, description="how many (k-means)")


Perturbation = Literal["keyboard", "swap", "drop", "double", "case", "order"]
PERTURBATIONS = get_args(Perturbation)


class SelfTeaching(Section):
    """How a dual encoder learns to rank for a query with typos as it does for the query itself (self-teaching)."""

    kinds: Distinct[Perturbation] = Field(
        ("keyboard", "swap", "drop", "double"),
        description="broken copies of the training queries in a dataset of source perturbed; each visit draws one",
    )
    weight: float = Field(1.0, gt=0, description="of the divergence")
    temperature: float = Field(1.0, gt=0, description="divides the query's own scores")


class DualTrain(SingleTrain):
    """How a dual encoder is trained."""

    loss: DualLoss = Field(
        "listwise", description="loss of each query's list; term_recall: DeepCT's, of its positive"
    )
    in_batch: bool = Field(True, description="the other queries' passages are negatives too")
    passage_centric: float = Field(
        0.0, ge=0, le=1, description="PAIR's α, weight of the passage-centric loss"
    )
    regularise: Regularise | None = Field(None, description="regularisers of the vectors")
    matryoshka: IfSet[Items[Count]] = Field(
        (), description="compute the loss also of vectors cut to these lengths: [256, 128]"
    )
    co_training: IfSet[float | None] = Field(
        None,
        gt=0,
        le=1,
        description="of SpaDE: each encoder learns this share of a batch's lists, the hardest by the other; null: all",
    )
    topics: IfSet[Topics | None] = Field(
        None, description="each batch has queries of one topic; null: any"
    )
    self_teaching: IfSet[SelfTeaching | None] = Field(
        None,
        description="queries with typos learn the query's own ranking too; the dataset is one of source perturbed, of "
        "split train",
    )
    live_negatives: IfSet[int | None] = Field(
        None,
        ge=1,
        description="ADORE: each step retrieves this many passages for its queries and learns from them; the vectors "
        "of passages stay as the start has them, so only the query's tower learns",
    )

    @property
    def own_objective(self) -> str | None:
        """The key, if one is set, by which a package's objective takes the place of the lists' own."""
        return next((key for key in _OBJECTIVE_KEYS if getattr(self, key) is not None), None)

    @property
    def visit_size(self) -> int:
        """Passages of an instance: a row has one negative, and a loss of `OWN_LOSSES` reads none."""
        return 1 if self.loss in OWN_LOSSES else 2 if self.instance == "row" else self.list_size

    @model_validator(mode="after")
    def _terms_fit(self) -> Self:
        if self.passage_centric and self.positives > 1:
            raise problem(
                f".positives is {self.positives}, but passage_centric is about one positive; set it to 1"
            )
        if self.budget_minutes and self.distil and self.distil.in_batch:
            raise problem(
                ".budget_minutes does not count what distil.in_batch computes; say steps or epochs"
            )
        for term in _TERM_KEYS:
            if getattr(self, term):
                find_code(BATCH_TERMS, term, term)
        if self.topics:
            find_code(ARRANGEMENTS, "topics", "topics")
        if self.self_teaching:
            find_code(QUERY_COPIES, "self_teaching", "self_teaching")
        if self.budget_minutes and self.self_teaching:
            raise problem(
                ".budget_minutes does not count what self_teaching computes; say steps or epochs"
            )
        if len({*self.matryoshka}) < len(self.matryoshka):
            raise problem(
                f".matryoshka is {[*self.matryoshka]}, which counts a cut twice; list each once"
            )
        others = ("distil", "passage_centric", "regularise", "matryoshka", "self_teaching")
        own = OWN_LOSSES.get(self.loss)
        if own and (key := next((key for key in others if getattr(self, key)), None)):
            raise problem(
                f".{key} is set, but loss is {self.loss}, which learns {own.learns}; leave it out"
            )
        if own and self.positives > 1:
            raise problem(
                f".positives is {self.positives}, but {self.loss} is about one positive; set it to 1"
            )
        return self

    @model_validator(mode="after")
    def _own_objective_fits(self) -> Self:
        key = self.own_objective
        if key is None:
            return self
        find_code(OWN_OBJECTIVES, key, key).check(self)
        return self


class CrossTrain(SingleTrain):
    """How a cross-encoder is trained."""

    loss: Supervision = Field("pointwise", description="loss of each query's list")
    in_batch: bool = Field(
        False, description="lists are lengthened by the other queries' positives"
    )

    @property
    def visit_size(self) -> int:
        """Passages of an instance: a row is a single pair."""
        return 1 if self.instance == "row" else self.list_size

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if self.instance == "row" and (self.loss != "pointwise" or self.in_batch or self.distil):
            raise problem(
                ".instance is row, a single pair: it takes loss: pointwise, and neither in_batch nor distil"
            )
        if self.distil and self.distil.in_batch:
            raise problem(
                ".distil.in_batch is of dual encoders, which score all passages of a batch; leave it out"
            )
        return self


class JointTrain(Train, TakesLosses):
    """How a retriever and a re-ranker are trained together."""

    losses = (("semantics", distillation), ("supervision", supervision))

    semantics: Distillation = Field(
        "paper",
        description="how the retriever learns from the re-ranker; paper: each learns from the other",
    )
    temperature: float = Field(
        1.0, gt=0, description="of both softmaxes, where `semantics` is a kl with one"
    )
    teacher: Literal["dynamic", "static"] = Field(
        "dynamic", description="static: the re-ranker does not learn"
    )
    supervision: Supervision = Field("listwise", description="the re-ranker's loss on the labels")
    margin: float = Field(1.0, ge=0, description="of hinge, in the unit of the scores")
    in_batch: bool = Field(
        False, description="lists are lengthened by the other queries' positives"
    )
    weight: float = Field(
        1.0,
        gt=0,
        exclude_if=is_one,
        description="weight of the distillation; if equal to queries_per_batch: Eq. 4 without 1/N",
    )
    retriever: IfSet[PartTrain | None] = Field(None, description="values of the retriever only")
    reranker: IfSet[PartTrain | None] = Field(None, description="values of the re-ranker only")

    def part(self, name: str) -> PartTrain:
        """Return the values that a part, `dual` or `cross`, has of its own."""
        return (self.retriever if name == "dual" else self.reranker) or PartTrain()
