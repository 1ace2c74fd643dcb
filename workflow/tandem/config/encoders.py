"""Starting encoders: published ones, and the common keys of those that stages make; re-rankers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, get_args

from pydantic import Field, SerializeAsAny, model_validator

from tandem.config.base import Items, Pooling, Section, problem
from tandem.config.representations import AnyRepresentation
from tandem.errors import UserError
from tandem.plugins import Declarations, name_plugin

# most numbers for a word that is read by its characters, including those for its begin and its end
LONGEST_WORD = 50


class Shape(Section):
    """Sizes of an encoder that has not been downloaded yet: for `estimate`, and to refuse what does not fit them."""

    layers: int = Field(description="transformer layers")
    hidden: int = Field(description="dimension of the states")
    feed_forward: int = Field(description="dimension within the feed-forward layers")
    vocabulary: int = Field(description="rows of the embedding matrix")
    positions: int | None = Field(
        None, ge=1, description="tokens of the longest input, special ones included"
    )


class Prompts(Section):
    """What is put in front of a side's texts, for the dual encoder only; it counts as part of their lengths."""

    query: str | None = Field(
        None, description="such as `query: ` or `Instruct: …\\nQuery: `; null: the encoder's own"
    )
    passage: str | None = Field(None, description="likewise of passages, in front of the title")

    def over(self, described: Mapping[str, str]) -> dict[str, str]:
        """Return side → prompt for the sides that have one: by these keys, else as an encoder's files describe it."""
        own = {side: text for side, text in self.model_dump().items() if text is not None}
        return {side: text for side, text in {**described, **own}.items() if text}


class Encoder(Section):
    """An entry of `encoders`: what all sources share. Absent values are the encoder's own."""

    licence: str | None = Field(None, description="carried into model cards")


class EncoderFiles(Section):
    """Which files an encoder consists of."""

    source: Literal["package", "folder", "hub"] = Field(description="where it is")
    package: str | None = Field(
        None, description="of source package: import name of the Python package"
    )
    folder: str | None = Field(None, description="of source package: the folder within it")
    name: str | None = Field(None, description="of source hub: organisation/name")
    revision: str | None = Field(None, description="of source hub: the commit")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="of its weights")
    layers: int | None = Field(
        None, ge=1, description="keep this many of its first layers; null: all"
    )


class Published(EncoderFiles, Encoder):
    """Where the files of a published model are, one of three places."""

    path: str | None = Field(None, description="of source folder: the folder")
    obtain: str | None = Field(
        None, description="of source folder: a command that makes it, named where it is missing"
    )

    @model_validator(mode="after")
    def _of_source(self) -> Self:
        places = {
            "package": ("package", "folder"),
            "folder": ("path", "obtain"),
            "hub": ("name", "revision"),
        }
        own = places[self.source]
        if not getattr(self, own[0]):
            raise problem(f".{own[0]} is missing; source {self.source} needs it")
        for keys in places.values():
            for key in keys:
                if key in own or getattr(self, key) is None:
                    continue
                hint = f"source {self.source} has {', '.join(own)}; leave it out, or set it to null"
                raise problem(f".{key} is {getattr(self, key)}, but {hint}")
        return self


class PublishedEncoder(Published):
    """An encoder that exists: in a Python package, in a folder, or on the Hugging Face hub."""

    representation: AnyRepresentation | None = Field(
        None,
        description="what a text becomes, by name or with options; null: what its files say, else single",
    )
    pooling: Pooling | None = Field(
        None, description="how a text's vector is made from its tokens' states"
    )
    normalize: bool | None = Field(None, description="vectors of length 1")
    temperature: float | None = Field(None, gt=0, description="divides the scores")
    prompts: Prompts = Field(
        Prompts(), description="what is put in front of queries and of passages"
    )
    dim: int | None = Field(
        None, ge=1, description="keep so many of a vector's first numbers (Matryoshka); null: all"
    )
    dense: Items[str] | None = Field(
        None,
        description="folders of linear layers between pooling and length 1, in order; null: those of its files",
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
                raise problem(
                    f".{key} is {value}, but the representation {chosen.type} does not use it; leave it out"
                )
        return self


class Reranker(Published):
    """A published cross-encoder of transformers' form `…ForSequenceClassification`, an entry of `rerankers`."""

    shape: Shape | None = Field(None, description="sizes of a re-ranker not yet downloaded")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.layers is not None:
            raise problem(f".layers is {self.layers}, but a re-ranker is taken whole; leave it out")
        return self


class MadeEncoder(Encoder):
    """An encoder that stages make, from another one or from nothing: the keys that all such sources share."""

    source: str = Field(description="where it is from")
    start: str | None = Field(None, description="encoder that learns further; null: a new one")
    pooling: Pooling | None = Field(
        None, description="null: that of `start`, else the usual one of its objective"
    )
    normalize: bool | None = Field(
        None, description="null: that of `start`, else the usual one of its objective"
    )
    temperature: float | None = Field(
        None, gt=0, description="null: that of `start`, else the usual one of its objective"
    )

    usual_pooling: ClassVar[Pooling] = "cls"
    usual_normalize: ClassVar[bool] = False
    usual_temperature: ClassVar[float] = 1.0
    has_own_tokenizer: ClassVar[bool] = False  # whatever it starts from; see `plans_tokenizer`


EncoderEntry = PublishedEncoder | SerializeAsAny[MadeEncoder]


@dataclass(frozen=True)
class EncoderSource:
    """How entries of `encoders` are read if stages make the encoders of their source.

    Attributes:
        models: the model of an entry, by the value of the key `by`.
        by: the key that chooses among them.
        common: base classes whose keys the reference lists once for all classes that share them.
    """

    models: Mapping[str, type[MadeEncoder]]
    by: str
    common: tuple[type[Section], ...] = ()


# By `source`. `plans_encoder` and `plans_tokenizer` (`tandem.plan.context`) register how such an encoder is planned.
ENCODER_SOURCES: Declarations[EncoderSource] = Declarations()


def register_encoder_source(name: str, source: EncoderSource) -> None:
    """Add a source of encoders that stages make; a `UserError` if the name is taken."""
    if name in ENCODER_SOURCES or name in get_args(EncoderFiles.model_fields["source"].annotation):
        raise UserError(f"source of encoders {name} is registered twice; rename one of them")
    ENCODER_SOURCES[name] = source
    name_plugin(name)


@dataclass(frozen=True)
class StartBlock:
    """Describe a block whose entries a cross-encoder may start from, as from those of `encoders`.

    Under the block's name, `plans_entry` registers how an entry is planned, and `plans_tokenizer` how the stage is
    that has its tokenizer.

    Attributes:
        noun: what an entry is called: a `generator`.
        pooling: the value of `pooling` of a cross-encoder that starts from an entry.
        has_positions: whether its texts may have at most as many tokens as it has positions.
    """

    noun: str
    pooling: str
    has_positions: bool = True


START_BLOCKS: Declarations[StartBlock] = Declarations()


def register_start(block: str, declaration: StartBlock) -> None:
    """Add a block whose entries a cross-encoder may start from; a `UserError` if it is there already."""
    if block in START_BLOCKS:
        raise UserError(f"block {block} is registered twice; rename one of them")
    START_BLOCKS[block] = declaration
