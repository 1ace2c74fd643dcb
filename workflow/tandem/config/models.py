"""The models that are trained: what they learn and start from, their training lists, and how they are validated."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, Self, TypeVar, get_args

from pydantic import Field, model_validator

from tandem.config.base import (
    IfSet,
    Items,
    PairPooling,
    Pooling,
    Section,
    by_value,
    is_one,
    problem,
)
from tandem.config.references import (
    CROSS_PARTS,
    DUAL_PARTS,
    CrossEncoderRefs,
    Input,
    Reference,
    RunRef,
)
from tandem.config.representations import AnyRepresentation
from tandem.config.training import (
    OWN_OBJECTIVES,
    CrossTrain,
    DualTrain,
    JointTrain,
    Lora,
    RankGroup,
    Train,
    find_code,
)

_T = TypeVar("_T", "Backfill", "Candidates")


def _forwards(ranks: _T) -> _T:
    first, depth = ranks.first_rank, ranks.depth
    if depth < first:
        raise problem(f".depth is {depth}, before first_rank ({first}); allowed: ≥ {first}")
    return ranks


MONO_T5 = "Query: {query} Document: {passage} Relevant:"  # Nogueira et al. 2020
DUO_T5 = "Query: {query} Document0: {first} Document1: {second} Relevant:"  # Pradeep et al. 2021
T5_WORDS = ("true", "false")  # of both
_TEXTS = re.compile(r"\{(?:query|passage|first|second)\}")  # where a prompt has its texts
# the sort of a cross-encoder that compares passages, for keys that name models
COMPARING = "comparing"


def check_pair_prompt(prompt: str, usual: str) -> None:
    """Refuse a prompt that has other texts than a usual one, or in another order; as a validator."""
    expected = _TEXTS.findall(usual)
    found = _TEXTS.findall(prompt)
    if found != expected:
        named = f"names {', '.join(found)}" if found else "names no text"
        raise problem(
            f".prompt {named}; allowed: {', '.join(expected)}, once each in this order, such as {usual!r}"
        )


class Backfill(Section):
    """Unjudged passages that fill up lists which denoising leaves too short."""

    first_rank: int = Field(ge=1, description="the first rank that they are taken from")
    depth: int = Field(ge=1, description="the last rank that they are taken from")

    _in_order = model_validator(mode="after")(_forwards)


class Denoise(Section):
    """Denoising of training lists by cross-encoders."""

    negative_below: float = Field(
        0.1, ge=0, le=1, description="a passage is a negative only if its probability is below"
    )
    positive_above: float | None = Field(
        0.9, ge=0, le=1, description="unlabelled passages above it become positives; null: none"
    )
    hybrid: bool = Field(
        False, description="mix denoised and undenoised negatives, as RocketQAv2 §3.3"
    )
    calibrate: IfSet[Literal["dev"] | None] = Field(
        None,
        description="dev: a probability is fitted to the judge's scores of dev's known positives and other candidates",
    )
    calibrate_queries: IfSet[int | None] = Field(
        None, ge=1, description="of `calibrate`: number of dev queries, chosen by a hash; null: all"
    )
    backfill: Backfill | None = Field(
        None, description="fill up short lists with unjudged passages of these ranks"
    )
    by: CrossEncoderRefs = Field(
        description="a cross-encoder, or several whose probabilities are averaged"
    )

    @model_validator(mode="after")
    def _used(self) -> Self:
        if self.calibrate_queries is not None and self.calibrate is None:
            raise problem(
                f".calibrate_queries is {self.calibrate_queries}, but calibrate is null; set it to dev"
            )
        return self

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.positive_above is not None and self.positive_above < self.negative_below:
            both = f"negative_below is {self.negative_below:g}, above positive_above ({self.positive_above:g})"
            raise problem(
                f".{both}: a passage between them would be both; lower it, or set positive_above"
            )
        return self


class BelowPositive(Section):
    """How far below the positive of its query a negative must score: positive-aware mining (NV-Retriever).

    If a query has several positives, the lowest score counts. Either `share` or `margin` is set.
    """

    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="at most this share of the positive's score (TopK-PercPos; the paper's is 0.95)",
    )
    margin: float | None = Field(
        None,
        ge=0,
        description="at least this much below it, in the unit of the scores (TopK-MarginPos)",
    )
    by: CrossEncoderRefs | None = Field(
        None,
        description="cross-encoders whose mean probability is compared; null: the scores of the run `from`",
    )

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.share is None) == (self.margin is None):
            raise problem(
                f" has {'neither' if self.share is None else 'both'} of share and margin; say one of them"
            )
        return self


class Refresh(Section):
    """How lists are drawn anew from what a dual encoder retrieves while it is trained (ANCE)."""

    lag: int = Field(
        1,
        ge=0,
        description="1: a checkpoint's passages are searched while the next one is trained, and the one after that "
        "learns from them; 0: the next one waits for them",
    )


class Behind(Section):
    """For which queries lists are drawn: another run answers them at rank 1, and `from` only at a lower rank.

    This is PROD's progression of the data (Lin et al. 2023): what a teacher ranks first and the student does not yet.
    """

    than: Annotated[str, Reference("run", "ahead")] = Field(
        description="the other run, whose first passage must be a positive"
    )
    first_rank: int = Field(
        2, ge=2, description="first rank at which the best positive may stand in `from`"
    )
    depth: int = Field(15, ge=2, description="last rank at which it may stand")

    _in_order = model_validator(mode="after")(_forwards)


class Candidates(Section):
    """Where the training lists come from.

    A positive has a label (qrels), is the first of the window that holds an answer (answers), is the judge's best if
    above `positive_above` (judge), or is among the run's first `positives` (rank). Where answers label, passages with
    an answer are never negatives.
    """

    split: str = Field(
        "train", description="the queries' split; `unlabelled` of datasets of that source"
    )
    labels: Literal["qrels", "answers", "judge", "rank"] = Field(
        "qrels", description="what makes a positive"
    )
    positives: IfSet[int | None] = Field(
        None,
        ge=1,
        description="of labels: rank: number of the run's first passages that are positives (DRAGON: 10)",
    )
    bar_answers: bool = Field(False, description="passages with an answer are not negatives")
    take: Literal["random", "first"] = Field(
        "random", description="which are taken if there are more than `negatives`"
    )
    negatives_per: Literal["query", "positive"] = Field(
        "query", description="whether `negatives` is per query or per positive"
    )
    near_duplicates: float | None = Field(
        None,
        gt=0,
        le=1,
        description="no negative shares this part of its token trigrams (Jaccard) with a positive; null: equal text",
    )
    least_grade: int = Field(
        1,
        ge=1,
        exclude_if=is_one,
        description="grade from which a label is a positive; lower ones are not negatives",
    )
    first_rank: int = Field(
        1, ge=1, description="first rank of the window that negatives are drawn from"
    )
    depth: int = Field(50, ge=1, description="last rank of the window")
    negatives: int | None = Field(
        None, ge=1, description="negatives in a list; null: all of the window"
    )
    queries: int | None = Field(
        None, ge=1, description="draw lists for this many queries only; null: all"
    )
    from_: Annotated[str, Reference("negatives", "run")] = Field(
        alias="from", description="run that lists are drawn from, or random: `depth` of the corpus"
    )
    look_ahead: Annotated[IfSet[bool], Input()] = Field(
        False,
        description="draw from what the dual encoder `from` finds for a query's relevant passage instead of the query "
        "(ANCE-Tele)",
    )
    also: "Annotated[Items[Candidates], Input()]" = Field(
        (), description="further lists that are joined to these, each by its own rules"
    )
    one_list: Annotated[IfSet[bool], Input()] = Field(
        False,
        description="with `also`: a query's lists become one, with shares of each run; false: they stay several",
    )
    behind: IfSet[Behind | None] = Field(
        None, description="only queries that `from` answers worse than another run; null: all"
    )
    refresh: Annotated[IfSet[Refresh | None], Input()] = Field(
        None,
        description="of a dual encoder with `train.checkpoints`: after the first of them, lists are drawn anew for "
        "each from what the model itself retrieves; null: drawn once",
    )
    seed: int | None = Field(None, ge=0, description="null: the configuration's")
    denoise: Denoise | None = Field(
        None, description="which passages a cross-encoder removes from the lists"
    )
    below_positive: BelowPositive | None = Field(
        None, description="which passages score too near a positive"
    )

    _in_order = model_validator(mode="after")(_forwards)

    @property
    def most_negatives(self) -> int:
        """How many negatives a list has at most; `backfill` fills up lists that the window leaves too short."""
        window = self.depth - self.first_rank + 1
        if self.negatives and self.denoise and self.denoise.backfill:
            return self.negatives
        return min(window, self.negatives or window)

    @property
    def calibrates(self) -> bool:
        """Whether a judge's scores are fitted to dev, of these lists or of those that are joined to them."""
        drawn = (self, *self.also)
        return any(
            lists.denoise is not None and lists.denoise.calibrate == "dev" for lists in drawn
        )


class Validation(Section):
    """How models are validated: each checkpoint by other jobs (`train.checkpoints`), else within the training."""

    from_: RunRef | None = Field(
        None,
        alias="from",
        description="run whose top is validated on; null: that of the negatives, else bm25",
    )
    depth: int = Field(
        100,
        ge=1,
        description="its passages per query in the reduced corpus, in addition to all relevant ones",
    )
    others: int = Field(
        0, ge=0, description="further passages per query, drawn by a hash of their ids"
    )
    queries: int | None = Field(
        None, ge=1, description="number of dev queries, chosen by their ids' hash; null: all"
    )
    method: Literal["retrieval", "average_rank"] = Field(
        "retrieval", description="of dual encoders; others re-rank"
    )
    part: Literal["dual", "cross"] = Field(
        "dual", description="which part of a joint model decides what is best"
    )
    measure: str = Field("RR@10", description="of retrieval and re-ranking")

    def overridden(self, own: "Validation") -> Self:
        """Return this with the keys that a model's own `validation` sets."""
        return self.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})


class ValidationSettings(Validation):
    """The configuration's `validation`, which models override key by key."""

    fidelity: bool = Field(
        False, description="compare validation with the full corpus in the report, which waits"
    )


class TrainedModel(Section):
    """An entry of `models`: what all objectives share."""

    dataset: Annotated[str | None, Input()] = Field(
        None, description="what it is trained on; null: `train_on`; searched: what is searched"
    )
    lora: Lora | None = Field(
        None, description="learn low-rank adapters instead of all weights; merged when saved"
    )
    candidates: Annotated[Candidates, Input()] = Field(
        description="where the training lists come from"
    )
    validation: Annotated[Validation, Input()] = Field(
        Validation(), description="what differs from the configuration's `validation`"
    )

    @property
    def sort(self) -> str:
        """The sort of the model, for keys that name models of some objectives: usually its objective."""
        return str(getattr(self, "objective", ""))

    @model_validator(mode="after")
    def _training_fits(self) -> Self:
        train: Train | None = getattr(self, "train", None)
        if self.lora and train and train.freeze_layers:
            raise problem(
                f".train.freeze_layers is {train.freeze_layers}, but lora freezes every layer; leave one of the two out"
            )
        groups: Sequence[RankGroup] = getattr(train, "groups", ())
        drawn = self.candidates
        most = 1 + drawn.most_negatives
        if groups and not drawn.also and groups[-1].last_rank > most:
            raise problem(
                f".train.groups end at rank {groups[-1].last_rank}, but lists have at most {most} passages; "
                "lower last_rank, or widen candidates"
            )
        return self


class DualModel(TrainedModel):
    """A dual encoder: queries and passages get vectors."""

    objective: Literal["dual"] = Field(description="what is learned")
    init: Annotated[str, Reference("start", "start", objectives=DUAL_PARTS)] = Field(
        "encoder", description="`encoder` (the configuration's), another encoder, or a model"
    )
    representation: AnyRepresentation | None = Field(
        None,
        description="what a text becomes, by name or with options; null: as in the start, else single",
    )
    shared: bool | None = Field(None, description="one tower for both sides; null: true")
    query_layers: int | None = Field(
        None,
        ge=1,
        description="the query's tower has this many of the encoder's first layers; null: all",
    )
    pooling: Pooling | None = Field(None, description="null: the encoder's, else cls")
    normalize: bool | None = Field(
        None, description="vectors of length 1; null: the encoder's, else false"
    )
    temperature: float | None = Field(
        None, gt=0, description="divides the scores; null: the encoder's, else 1"
    )
    train: DualTrain = Field(DualTrain(), description="how it is trained")


class CrossModel(TrainedModel):
    """A cross-encoder: scores pairs of a query and a passage."""

    objective: Literal["cross"] = Field(description="what is learned")
    # A dual encoder's passage tower may become a cross-encoder; not the other way round.
    init: Annotated[
        str, Reference("start", "start", objectives=(*CROSS_PARTS, "dual", COMPARING))
    ] = Field(
        "encoder",
        description="`encoder` (the configuration's), another encoder or generator, a model or re-ranker",
    )
    pooling: PairPooling | None = Field(
        None,
        description="null: the start's, else cls; segments: cosine of the query's and the passage's mean state; "
        "classifier: the family's own classification head, which a re-ranker has; decoder: words that a T5 or BART "
        "writes, an entry of `generators`",
    )
    compares: bool = Field(
        False,
        description="reads two passages, and scores how much more relevant the first one is: duoBERT, duoT5; an entry "
        "of `comparisons` re-ranks by it",
    )
    prompt: str | None = Field(
        None,
        description="what is read, {query} and {passage} with words around them, or {query}, {first} and {second}; "
        "null: the encoder's special tokens around the texts, of pooling decoder monoT5's or duoT5's prompt",
    )
    words: Annotated[Items[str], Field(max_length=2)] = Field(
        (),
        description="of pooling decoder: the word whose logit is the score (RankT5), or two whose log-odds it is; "
        "empty: true and false (monoT5)",
    )
    train: CrossTrain = Field(CrossTrain(), description="how it is trained")

    @property
    def sort(self) -> str:
        """See `TrainedModel`."""
        return COMPARING if self.compares else self.objective

    @model_validator(mode="after")
    def _prompt_fits(self) -> Self:
        if self.prompt is not None:
            check_pair_prompt(self.prompt, DUO_T5 if self.compares else MONO_T5)
        return self

    @model_validator(mode="after")
    def _comparison_fits(self) -> Self:
        if self.compares:
            find_code(OWN_OBJECTIVES, "compares", "compares").check(self)
        return self


class JointInit(Section):
    """What a joint training starts from."""

    retriever: Annotated[str, Reference("start", objectives=DUAL_PARTS)] = Field(
        description="a dual encoder"
    )
    reranker: Annotated[str, Reference("start", objectives=CROSS_PARTS)] = Field(
        description="a cross-encoder or re-ranker"
    )


class JointModel(TrainedModel):
    """A dual encoder and a cross-encoder that learn together: RocketQAv2."""

    objective: Literal["joint"] = Field(description="what is learned")
    init: JointInit = Field(description="what it starts from")
    train: JointTrain = Field(JointTrain(), description="how both are trained")


ModelEntry = DualModel | CrossModel | JointModel
OBJECTIVES: dict[str, type[ModelEntry]] = by_value("objective", *get_args(ModelEntry))
