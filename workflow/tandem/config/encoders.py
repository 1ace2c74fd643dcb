"""Starting encoders: published ones, and those that the project pre-trains itself (`source: pretrain`); re-rankers."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from tandem.config.base import Items, Pooling, Section, by_value, problem
from tandem.config.references import DatasetRef
from tandem.config.representations import AnyRepresentation, Named
from tandem.config.training import Optimisation


class Shape(Section):
    """Sizes of an encoder that has not been downloaded yet: for `estimate`, and to refuse what does not fit them."""

    layers: int = Field(description="transformer layers")
    hidden: int = Field(description="dimension of the states")
    feed_forward: int = Field(description="dimension within the feed-forward layers")
    vocabulary: int = Field(description="rows of the embedding matrix")
    positions: int | None = Field(None, ge=1, description="tokens of the longest input, special ones included")


class Prompts(Section):
    """What is put in front of a side's texts, for the dual encoder alone; it counts as part of their lengths."""

    query: str | None = Field(None, description="such as `query: ` or `Instruct: …\\nQuery: `; null: the encoder's own")
    passage: str | None = Field(None, description="likewise of passages, in front of the title")

    def over(self, described: Mapping[str, str]) -> dict[str, str]:
        """Return the sides that have a prompt: by these keys, else by what an encoder's files describe."""
        own = {side: text for side, text in self.model_dump().items() if text is not None}
        return {side: text for side, text in {**described, **own}.items() if text}


class Encoder(Section):
    """An entry of `encoders`: what all sources share. Absent values are the encoder's own."""

    licence: str | None = Field(None, description="carried into model cards")


class EncoderFiles(Section):
    """Which files an encoder consists of."""

    source: Literal["package", "folder", "hub"] = Field(description="where it is; pretrain: made by the project")
    package: str | None = Field(None, description="of source package: import name of the Python package")
    folder: str | None = Field(None, description="of source package: the folder within it")
    name: str | None = Field(None, description="of source hub: organisation/name")
    revision: str | None = Field(None, description="of source hub: the commit")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="of its weights")
    layers: int | None = Field(None, ge=1, description="keep this many of its first layers; null: all")


class Published(EncoderFiles, Encoder):
    """Where the files of a published model are, one of three places."""

    path: str | None = Field(None, description="of source folder: the folder")
    obtain: str | None = Field(None, description="of source folder: a command that makes it, named where it is missing")

    @model_validator(mode="after")
    def _of_source(self) -> Self:
        places = {"package": ("package", "folder"), "folder": ("path", "obtain"), "hub": ("name", "revision")}
        own = places[self.source]
        if not getattr(self, own[0]):
            raise problem(f".{own[0]} is missing; source {self.source} needs it")
        for key in (key for keys in places.values() for key in keys if key not in own):
            if getattr(self, key) is not None:
                hint = f"source {self.source} has {', '.join(own)}; leave it out, or set it to null"
                raise problem(f".{key} is {getattr(self, key)}, but {hint}")
        return self


class PublishedEncoder(Published):
    """An encoder that exists: in a Python package, in a folder, or on the Hugging Face hub."""

    representation: Annotated[AnyRepresentation | None, Named] = Field(
        None, description="what a text becomes, by name or with options; null: what its files say, else single"
    )
    pooling: Pooling | None = Field(None, description="how a text's vector is made from its tokens' states")
    normalize: bool | None = Field(None, description="vectors of length 1")
    temperature: float | None = Field(None, gt=0, description="divides the scores")
    prompts: Prompts = Field(Prompts(), description="what is put in front of queries and of passages")
    dim: int | None = Field(None, ge=1, description="keep so many of a vector's first numbers (Matryoshka); null: all")
    dense: Items[str] | None = Field(
        None, description="folders of linear layers between pooling and length 1, in order; null: those of its files"
    )
    shape: Shape | None = Field(None, description="sizes of an encoder not yet downloaded")

    @property
    def poolings(self) -> tuple[str, ...]:
        """The values of `pooling` that its representation allows."""
        usual = self.representation.usual.get("pooling") if self.representation else None
        return (str(usual),) if usual else get_args(Pooling)

    @model_validator(mode="after")
    def _of_representation(self) -> Self:
        chosen = self.representation
        if chosen is None:
            return self
        for key, value in (("pooling", self.pooling), ("normalize", self.normalize)):
            if key in chosen.unused and value not in (None, chosen.usual[key]):
                raise problem(f".{key} is {value}, but the representation {chosen.type} does not use it; leave it out")
        return self


class Reranker(Published):
    """A published cross-encoder of transformers' form `…ForSequenceClassification`, an entry of `rerankers`."""

    shape: Shape | None = Field(None, description="sizes of a re-ranker not yet downloaded")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.layers is not None:
            raise problem(f".layers is {self.layers}, but a re-ranker is taken whole; leave it out")
        return self


class Pretrain(Optimisation):
    """How an encoder is pre-trained: what all objectives share."""

    passages_per_batch: int = Field(256, ge=2, description="passages per step, over all devices")
    lr: float = Field(1e-4, gt=0, description="peak learning rate")


class Spans(Pretrain):
    """Spans that are cut out of a passage."""

    crop_shortest: float = Field(0.1, gt=0, le=1, description="smallest share of a passage that a span has")
    crop_longest: float = Field(0.5, gt=0, le=1, description="largest share of a passage that a span has")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.crop_shortest > self.crop_longest:
            raise problem(f".crop_shortest is above crop_longest ({self.crop_longest})")
        return self


class Masking(Pretrain):
    """Masked language modelling."""

    mask_probability: float = Field(0.15, gt=0, le=1, description="share of the tokens that are hidden")


class CondenserTrain(Masking):
    """Condenser: a short head restores tokens from the vector and early states."""

    head_layers: int = Field(2, ge=1, description="layers of the head")
    skip_from: int | None = Field(None, ge=0, description="layer whose token states enter the head; null: the middle")


class TsdaeTrain(Pretrain):
    """TSDAE: a decoder restores a passage from the vector of what is left of it."""

    deletion_probability: float = Field(0.6, ge=0, lt=1, description="share of the tokens that are deleted")
    decoder_layers: int = Field(2, ge=1, description="layers of the decoder")


class IctTrain(Spans):
    """The inverse cloze task: a span is near to the passage that it is cut out of."""

    crop_longest: float = Field(0.3, gt=0, le=1, description="largest share of a passage that a span has")
    keep_probability: float = Field(0.1, ge=0, le=1, description="share of the spans that stay in their passage")


class CotMaeTrain(Spans):
    """CoT-MAE: a shallow decoder restores a span from the vector of another one of its passage."""

    mask_probability: float = Field(0.3, gt=0, le=1, description="share of the encoder's tokens that are hidden")
    decoder_mask_probability: float = Field(0.45, gt=0, le=1, description="share of the decoder's hidden tokens")
    decoder_layers: int = Field(2, ge=1, description="layers of the decoder")


class LexMaeTrain(Masking):
    """LexMAE: a shallow decoder restores the passage from weights of terms."""

    mask_probability: float = Field(0.3, gt=0, le=1, description="share of the encoder's tokens that are hidden")
    decoder_mask_probability: float = Field(0.5, gt=0, le=1, description="share of the decoder's hidden tokens")
    decoder_layers: int = Field(2, ge=1, description="layers of the decoder")


class RetroMaeTrain(Masking):
    """RetroMAE: a shallow decoder restores the passage from its vector."""

    mask_probability: float = Field(0.3, gt=0, le=1, description="share of the encoder's tokens that are hidden")
    decoder_mask_probability: float = Field(0.5, ge=0, le=1, description="share of the decoder's hidden tokens")


class DupMaeTrain(RetroMaeTrain):
    """DupMAE, or RetroMAE v2: token states restore the passage's set of words too."""

    bag_weight: float = Field(1.0, gt=0, description="weight of the loss of the set of words")


class CoCondenserTrain(Spans):
    """coCondenser: a short head restores tokens from the vector; spans of one passage are near."""

    mask_probability: float = Field(0.15, gt=0, le=1, description="share of the tokens that are hidden")
    head_layers: int = Field(2, ge=1, description="layers of the head")
    skip_from: int | None = Field(None, ge=0, description="layer whose token states enter the head; null: the middle")


class NewEncoder(Section):
    """Sizes of an encoder that starts from random weights."""

    vocabulary: int = Field(30000, ge=100, description="pieces of its WordPiece tokenizer")
    lowercase: bool = Field(True, description="texts are lowercased")
    layers: int = Field(2, ge=0, description="transformer layers; 0: static, a bag of words' vectors")
    hidden: int = Field(256, ge=1, description="dimension of the states")
    heads: int = Field(4, ge=1, description="attention heads")
    feed_forward: int = Field(1024, ge=1, description="dimension within the feed-forward layers")
    positions: int = Field(512, ge=8, description="longest input, special tokens included")


class PretrainedEncoder(NewEncoder, Encoder):
    """An encoder that the project pre-trains: what all objectives share."""

    source: Literal["pretrain"] = Field(description="where it is from")
    dataset: DatasetRef | None = Field(
        None, description="whose passages it learns from; null: the one that is searched"
    )
    start: str | None = Field(None, description="encoder that learns further; null: new, by the keys up to `positions`")
    pooling: Pooling | None = Field(None, description="null: that of `start`, else mean (crop, mlm) or cls")
    normalize: bool | None = Field(None, description="null: that of `start`, else true in crop alone")
    temperature: float | None = Field(None, gt=0, description="null: that of `start`, else 0.05 in crop, 1 elsewhere")

    usual_pooling: ClassVar[Pooling] = "cls"
    usual_normalize: ClassVar[bool] = False
    usual_temperature: ClassVar[float] = 1.0

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.start is not None and (own := [key for key in NewEncoder.model_fields if key in self.model_fields_set]):
            raise problem(f".{own[0]} cannot be set beside start, which brings its own; leave it out")
        if self.start is None and self.hidden % self.heads:
            raise problem(f".hidden is {self.hidden}, which heads ({self.heads}) does not divide")
        return self


class CropEncoder(PretrainedEncoder):
    """An encoder that learns contrastively: two spans of a passage are near."""

    objective: Literal["crop"] = Field(description="what is learned")
    train: Spans = Field(Spans(), description="how it learns")

    usual_pooling: ClassVar[Pooling] = "mean"
    usual_normalize: ClassVar[bool] = True
    usual_temperature: ClassVar[float] = 0.05


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


AnyPretrained = (
    CropEncoder
    | MlmEncoder
    | RetroMaeEncoder
    | CoCondenserEncoder
    | CondenserEncoder
    | TsdaeEncoder
    | IctEncoder
    | CotMaeEncoder
    | DupMaeEncoder
    | LexMaeEncoder
)
EncoderEntry = PublishedEncoder | AnyPretrained
PRETRAINING: dict[str, type[AnyPretrained]] = by_value("objective", *get_args(AnyPretrained))
