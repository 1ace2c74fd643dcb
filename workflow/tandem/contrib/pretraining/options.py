"""The keys of encoders with source `pretrain`, and the parameters of the stages that train them."""

from operator import not_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, SerializeAsAny, model_validator

from tandem.config.base import Choice, Model, Pooling, Section, by_value, problem
from tandem.config.encoders import MadeEncoder
from tandem.config.references import DatasetRef
from tandem.config.training import Optimisation
from tandem.stages.base import Params
from tandem.stages.training import Learning


class Pretrain(Optimisation):
    """How an encoder is pre-trained: the keys that all objectives share."""

    passages_per_batch: int = Field(256, ge=2, description="passages per step, over all devices")
    lr: float = Field(1e-4, gt=0, description="peak learning rate")


class Spans(Pretrain):
    """Spans that are cut out of a passage."""

    crop_shortest: float = Field(
        0.1, gt=0, le=1, description="smallest share of a passage that a span has"
    )
    crop_longest: float = Field(
        0.5, gt=0, le=1, description="largest share of a passage that a span has"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.crop_shortest > self.crop_longest:
            raise problem(f".crop_shortest is above crop_longest ({self.crop_longest})")
        return self


class CropTrain(Spans):
    """Crops: two spans of a passage are trained to be near."""

    deletion_probability: float = Field(
        0.0,
        ge=0,
        lt=1,
        exclude_if=not_,
        description="share of a span's tokens that are deleted",
    )


class MocoTrain(CropTrain):
    """Momentum contrast: two spans of a passage are trained to be near, and spans of earlier passages to be far."""

    queue: int = Field(
        131072, ge=1, description="vectors of earlier passages that are the negatives"
    )
    momentum: float = Field(
        0.9995,
        ge=0,
        lt=1,
        description="share of its weights that the negatives' encoder keeps in a step",
    )


class Predicting(Pretrain):
    """A head that predicts tokens."""

    head: Literal["start", "random"] = Field(
        "start",
        description="first weights of the head that predicts tokens: those of the start, if it has any, or random",
    )


class Masking(Predicting):
    """Masked language modelling."""

    mask_probability: float = Field(
        0.15, gt=0, le=1, description="share of the tokens that are hidden"
    )


class ShortHead(Masking):
    """A short head that restores hidden tokens from the vector and the token states of an early layer."""

    head_layers: int = Field(2, ge=1, description="layers of the head")
    skip_from: int | None = Field(
        None, ge=0, description="layer whose token states enter the head; null: the middle"
    )


class Decoder(Predicting):
    """A shallow decoder that restores a text from a vector."""

    decoder_layers: int = Field(2, ge=1, description="layers of the decoder")


class CondenserTrain(ShortHead):
    """Condenser: a short head restores tokens from the vector and early states."""


class TsdaeTrain(Predicting):
    """TSDAE: the encoder, used as a decoder, restores a passage from the vector of its remaining tokens."""

    deletion_probability: float = Field(
        0.6, ge=0, lt=1, description="share of the tokens that are deleted"
    )


class IctTrain(Spans):
    """The inverse cloze task: a span is trained to be near the passage from which it is cut."""

    crop_longest: float = Field(
        0.3, gt=0, le=1, description="largest share of a passage that a span has"
    )
    keep_probability: float = Field(
        0.1, ge=0, le=1, description="share of the spans that stay in their passage"
    )


class CotMaeTrain(Spans, Decoder):
    """CoT-MAE: a shallow decoder restores a span from the vector of another span of the same passage."""

    mask_probability: float = Field(
        0.3, gt=0, le=1, description="share of the encoder's tokens that are hidden"
    )
    decoder_mask_probability: float = Field(
        0.45, gt=0, le=1, description="share of the decoder's hidden tokens"
    )


class LexMaeTrain(Masking, Decoder):
    """LexMAE: a shallow decoder restores the passage from weights of terms."""

    mask_probability: float = Field(
        0.3, gt=0, le=1, description="share of the encoder's tokens that are hidden"
    )
    decoder_mask_probability: float = Field(
        0.5, gt=0, le=1, description="share of the decoder's hidden tokens"
    )


class RetroMaeTrain(Masking):
    """RetroMAE: a shallow decoder restores the passage from its vector."""

    mask_probability: float = Field(
        0.3, gt=0, le=1, description="share of the encoder's tokens that are hidden"
    )
    decoder_mask_probability: float = Field(
        0.5, ge=0, le=1, description="share of the decoder's hidden tokens"
    )


class DupMaeTrain(RetroMaeTrain):
    """DupMAE, or RetroMAE v2: token states restore the passage's set of words too."""

    bag_weight: float = Field(1.0, gt=0, description="weight of the loss of the set of words")


class CoCondenserTrain(Spans, ShortHead):
    """coCondenser: a short head restores tokens from the vector; spans of one passage are trained to be near."""


class NewEncoder(Section):
    """Sizes of an encoder that starts from random weights."""

    vocabulary: int = Field(30000, ge=100, description="pieces of its WordPiece tokenizer")
    lowercase: bool = Field(True, description="texts are lowercased")
    layers: int = Field(2, ge=0, description="transformer layers; 0: static, a bag of word vectors")
    hidden: int = Field(256, ge=1, description="dimension of the states")
    heads: int = Field(4, ge=1, description="attention heads")
    feed_forward: int = Field(1024, ge=1, description="dimension within the feed-forward layers")
    positions: int = Field(512, ge=8, description="longest input, special tokens included")


class PretrainedEncoder(NewEncoder, MadeEncoder):
    """An encoder that the project pre-trains: the keys that all objectives share.

    If neither the entry nor `start` states how vectors are computed, pooling is mean for crop, moco and mlm, and cls
    for the others. For crop and moco, vectors have length 1 and the temperature is 0.05; for the others, vectors are
    not normalized and the temperature is 1.
    """

    source: Literal["pretrain"] = Field(description="where the encoder comes from")
    dataset: DatasetRef | None = Field(
        None, description="whose passages it learns from; null: the dataset that is searched"
    )
    if TYPE_CHECKING:  # fields of each class below, each with its own values and keys
        objective: Any
        train: Any

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        own = [key for key in NewEncoder.model_fields if key in self.model_fields_set]
        if self.start is not None and own:
            raise problem(
                f".{own[0]} cannot be set beside start, which brings its own; leave it out"
            )
        if self.start is None and self.hidden % self.heads:
            raise problem(f".hidden is {self.hidden}, which heads ({self.heads}) does not divide")
        return self


class UnitVectors:
    """The defaults of encoders whose vectors learn by cosine similarity."""

    usual_pooling: ClassVar[Pooling] = "mean"
    usual_normalize: ClassVar[bool] = True
    usual_temperature: ClassVar[float] = 0.05


class CropEncoder(UnitVectors, PretrainedEncoder):
    """An encoder that learns contrastively that two spans of a passage are near."""

    objective: Literal["crop"] = Field(description="what is learned")
    train: CropTrain = Field(CropTrain(), description="how it learns")


class MlmEncoder(PretrainedEncoder):
    """An encoder that learns by masked language modelling."""

    objective: Literal["mlm"] = Field(description="what is learned")
    train: Masking = Field(Masking(), description="how it learns")

    usual_pooling: ClassVar[Pooling] = "mean"


class RetroMaeEncoder(PretrainedEncoder):
    """An encoder that learns by RetroMAE."""

    objective: Literal["retromae"] = Field(description="what is learned")
    train: RetroMaeTrain = Field(RetroMaeTrain(), description="how it learns")


class CoCondenserEncoder(PretrainedEncoder):
    """An encoder that learns by coCondenser."""

    objective: Literal["cocondenser"] = Field(description="what is learned")
    train: CoCondenserTrain = Field(CoCondenserTrain(), description="how it learns")


class CondenserEncoder(PretrainedEncoder):
    """An encoder that learns by Condenser."""

    objective: Literal["condenser"] = Field(description="what is learned")
    train: CondenserTrain = Field(CondenserTrain(), description="how it learns")


class TsdaeEncoder(PretrainedEncoder):
    """An encoder that learns by TSDAE."""

    objective: Literal["tsdae"] = Field(description="what is learned")
    train: TsdaeTrain = Field(TsdaeTrain(), description="how it learns")


class IctEncoder(PretrainedEncoder):
    """An encoder that learns by the inverse cloze task."""

    objective: Literal["ict"] = Field(description="what is learned")
    train: IctTrain = Field(IctTrain(), description="how it learns")


class CotMaeEncoder(PretrainedEncoder):
    """An encoder that learns by CoT-MAE."""

    objective: Literal["cot_mae"] = Field(description="what is learned")
    train: CotMaeTrain = Field(CotMaeTrain(), description="how it learns")


class DupMaeEncoder(PretrainedEncoder):
    """An encoder that learns by DupMAE."""

    objective: Literal["dup_mae"] = Field(description="what is learned")
    train: DupMaeTrain = Field(DupMaeTrain(), description="how it learns")


class LexMaeEncoder(PretrainedEncoder):
    """An encoder that learns by LexMAE."""

    objective: Literal["lex_mae"] = Field(description="what is learned")
    train: LexMaeTrain = Field(LexMaeTrain(), description="how it learns")


class MocoEncoder(UnitVectors, PretrainedEncoder):
    """An encoder that learns contrastively, against a queue of earlier passages."""

    objective: Literal["moco"] = Field(description="what is learned")
    train: MocoTrain = Field(MocoTrain(), description="how it learns")


# Objective → the model of its entry, and objective → the model of `train`, for every class above.
PRETRAINING: dict[str, type[PretrainedEncoder]] = by_value(
    "objective", *PretrainedEncoder.__subclasses__()
)
PRETRAININGS: dict[str, type[Model]] = {
    name: type(entry.model_fields["train"].default) for name, entry in PRETRAINING.items()
}


class VocabularyParams(NewEncoder, Params):
    """An untrained encoder with a WordPiece tokenizer of its own."""

    seed: int = Field(description="seed of the random weights")


class PretrainParams(Learning):
    """Pre-training of an encoder from a corpus only."""

    trains = PRETRAININGS

    objective: Annotated[str, Choice(PRETRAININGS)] = Field(description="what is learned")
    train: SerializeAsAny[Pretrain] = Field(description="how it learns; the seed is set")
