"""What a dual encoder makes of a text: one vector, or something else; docs/representations.md says how to add one.

A representation is a section here, a class of models (`@representation`, in `models/`) and a function that plans its
search (`@search`, in `plan/`). Everything else finds these by `type` and never asks which it is.
"""

import math
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tandem.config.base import Choice, Count, Distinct, IfSet, Section, by_value, equals
from tandem.registry import Registry


class Representation(Section):
    """The options of a representation."""

    type: str = Field(description="decides which further keys there are")

    # whether such a model re-ranks, judges and teaches as cross-encoders do
    scores_pairs: ClassVar[bool] = False
    # values of a dual encoder's other keys where its entry does not have them
    usual: ClassVar[dict[str, object]] = {}
    # keys of `models` that mean nothing for it: refused
    unused: ClassVar[tuple[str, ...]] = ("train.co_training",)
    encoders: ClassVar[int] = 1  # how many of them read a passage
    # numbers of a stored row beside its `dim`: of the id of its token
    id_numbers: ClassVar[int] = 0

    @property
    def side_markers(self) -> dict[str, str]:
        """The token in front of a side's texts, by side; here no side has one."""
        return {}

    def head(self, vocabulary: int) -> int:
        """Return how many numbers a layer of its own makes of a token's state, of which a text keeps few.

        It is 0 without such a layer.
        """
        return 0

    def active_terms(self, tokens: float) -> float | None:
        """Return how many weights a text of so many tokens has at most; None: as many as it learns to have."""
        return None


class Single(Representation):
    """One vector a text, pooled from its tokens' states; scores are dot products."""

    type: Literal["single"] = Field("single", description="which representation it is")


class Markers(Section):
    """Tokens by which an encoder knows what it reads: [Q] and [D] of ColBERT."""

    query: str | None = Field(
        None,
        pattern=r"^\S+$",
        description="in front of queries: an entry of the vocabulary, else a new one; null: none",
    )
    passage: str | None = Field(
        None, pattern=r"^\S+$", description="likewise of passages, in front of the title"
    )


class Multi(Representation):
    """A vector a token, late interaction: a query's tokens each find their nearest token of a passage (ColBERT)."""

    type: Literal["multi"] = Field("multi", description="which representation it is")
    dim: int | None = Field(
        128, ge=1, description="numbers of a token's vector, by a new linear layer; null: no layer"
    )
    query_tokens: int | None = Field(
        32,
        ge=3,
        description="tokens of a query, filled up with [MASK], special ones included; null: its own",
    )
    attend: bool = Field(
        False, description="the encoder attends to the [MASK] tokens that fill up a query"
    )
    skip_punctuation: bool = Field(True, description="punctuation of passages has no vectors")
    markers: IfSet[Markers | None] = Field(
        None,
        description="tokens in front of queries and of passages, part of `lengths`; null: none",
    )
    query_vectors: IfSet[int | None] = Field(
        None, ge=1, description="only the first so many vectors of a query; null: all"
    )
    passage_vectors: IfSet[int | None] = Field(
        None, ge=1, description="only the first so many vectors of a passage (ME-BERT); null: all"
    )

    scores_pairs: ClassVar[bool] = True
    usual: ClassVar[dict[str, object]] = {"pooling": "cls", "normalize": True, "temperature": 1.0}
    unused: ClassVar[tuple[str, ...]] = (*Representation.unused, "pooling", "train.regularise")

    @property
    def side_markers(self) -> dict[str, str]:
        """The token in front of a side's texts, by side; a side without one is left out."""
        tokens = self.markers.model_dump() if self.markers else {}
        return {side: token for side, token in tokens.items() if token}

    def first(self, side: str) -> int | None:
        """Return how many of a text's vectors there are at most; None: a vector for every token."""
        return self.query_vectors if side == "query" else self.passage_vectors

    def vectors(self, side: str, tokens: float) -> float:
        """Return how many vectors a text of so many tokens, special ones included, has at most."""
        filled = self.query_tokens if side == "query" else None
        return min(filled or tokens, self.first(side) or math.inf)


class Unpooled(Representation):
    """One to which pooling, vectors of length 1 and cut vectors mean nothing."""

    usual: ClassVar[dict[str, object]] = {"pooling": "max", "normalize": False, "temperature": 1.0}
    unused: ClassVar[tuple[str, ...]] = (
        *Representation.unused,
        "pooling",
        "normalize",
        "train.matryoshka",
    )


class SparseTerms(Unpooled):
    """A weight for each entry of the vocabulary, mostly 0, by a head that predicts tokens (SPLADE)."""

    type: Literal["sparse"] = Field("sparse", description="which representation it is")
    pooling: Literal["max", "sum"] = Field(
        "max", description="over a text's tokens; sum: as in the first SPLADE"
    )
    activation: Literal["relu", "log1p_relu"] = Field(
        "relu", description="of a logit; log1p_relu: the logarithm twice"
    )
    queries: Literal["encoded", "tokens"] = Field(
        "encoded", description="tokens: 1 for each of its tokens, no model"
    )
    top: int | None = Field(
        None, ge=1, description="only so many of a text's weights, the largest; null: all"
    )

    def head(self, vocabulary: int) -> int:
        """Return a number for each entry of the vocabulary."""
        return vocabulary


class UniCoilTerms(Unpooled):
    """A weight for each token of a text, by a linear layer on its state (uniCOIL without expansion)."""

    type: Literal["unicoil"] = Field("unicoil", description="which representation it is")
    queries: Literal["encoded", "tokens"] = Field(
        "encoded",
        exclude_if=equals("encoded"),
        description="tokens: 1 for each of its tokens, no model",
    )


class WinnersTakeAll(Unpooled):
    """Weights of very many dimensions, by new linear layers, of which a token keeps its largest alone (UHD-BERT)."""

    type: Literal["uhd"] = Field("uhd", description="which representation it is")
    width: int = Field(81920, ge=1, description="how many dimensions a bucket has")
    winners: int = Field(
        80,
        ge=1,
        description="dimensions of a bucket that a token keeps: its largest numbers, above 0",
    )
    layers: IfSet[Distinct[Count] | None] = Field(
        None,
        description="of the encoder, from 1: each fills a bucket of its own; null: the last one does",
    )
    binary: bool = Field(True, description="a text's weights are 1, except while it learns")

    def head(self, vocabulary: int) -> int:
        """Return a number for each dimension."""
        return self.width * self.buckets

    def active_terms(self, tokens: float) -> float:
        """Those of all tokens, were all of them different."""
        return min(self.width, self.winners * tokens) * self.buckets

    @property
    def buckets(self) -> int:
        """How many layers of the encoder have dimensions of their own."""
        return len(self.layers or (0,))


class SpadeTerms(Unpooled):
    """Weights of a passage's own tokens, and of terms that a second encoder adds to them (SpaDE)."""

    type: Literal["spade"] = Field("spade", description="which representation it is")
    queries: Literal["tokens"] = Field(
        "tokens", description="1 for each of a query's tokens, no model"
    )
    terms: int = Field(
        2, ge=1, description="entries of the vocabulary that each token of a passage stands for"
    )
    share: float = Field(
        0.3, ge=0, le=1, description="of the expansion in a weight; the rest is the own token's"
    )

    unused: ClassVar[tuple[str, ...]] = (
        *(key for key in Unpooled.unused if key != "train.co_training"),
        "train.self_teaching",
    )
    encoders: ClassVar[int] = 2

    def head(self, vocabulary: int) -> int:
        """Return a number for each entry of the vocabulary."""
        return vocabulary


class CoilVectors(Unpooled):
    """A vector a token, which meets those of the same token alone, and one of the whole text (COIL)."""

    type: Literal["coil"] = Field("coil", description="which representation it is")
    dim: int = Field(32, ge=1, description="numbers of a token's vector, by a new linear layer")
    cls_dim: int | None = Field(
        768, ge=1, description="those of the first token's, the whole text's; null: none"
    )

    scores_pairs: ClassVar[bool] = True
    unused: ClassVar[tuple[str, ...]] = (*Unpooled.unused, "train.regularise")
    id_numbers: ClassVar[int] = 2

    @property
    def pieces(self) -> int:
        """How many rows of `dim` numbers hold the vector of the whole text."""
        return -(-(self.cls_dim or 0) // self.dim)

    def vectors(self, side: str, tokens: float) -> float:
        """Return how many rows a text of so many tokens has at most, on either side."""
        return tokens + self.pieces


class PolyCodes(Unpooled):
    """A vector a passage, which weighs several of a query, by learned codes: pairs are scored, none searched."""

    type: Literal["poly"] = Field("poly", description="which representation it is")
    codes: int = Field(64, ge=1, description="vectors of a query")

    scores_pairs: ClassVar[bool] = True
    unused: ClassVar[tuple[str, ...]] = CoilVectors.unused


AnyRepresentation = (
    Single
    | Multi
    | SparseTerms
    | UniCoilTerms
    | WinnersTakeAll
    | SpadeTerms
    | CoilVectors
    | PolyCodes
)
REPRESENTATIONS: dict[str, type[Representation]] = by_value("type", *get_args(AnyRepresentation))

# The class of models of each type, a `models.dual.DualEncoder`.
representation: Registry[Any] = Registry("representation", "representation", "models")


def _of_name(value: Any) -> Any:
    """Return the options of a representation that is named alone, or with options; anything else as it is."""
    name = value.get("type") if isinstance(value, dict) else value
    if isinstance(name, str) and name not in REPRESENTATIONS:
        raise PydanticCustomError("allowed", "{allowed}", {"allowed": ", ".join(REPRESENTATIONS)})
    return {"type": value} if isinstance(value, str) else value


Named = BeforeValidator(
    _of_name, json_schema_input_type=Annotated[str, Choice(REPRESENTATIONS)] | AnyRepresentation
)
ChosenRepresentation = Annotated[AnyRepresentation, Named]
"""A representation by its name alone or with options: `multi`, or `{type: multi, dim: 96}`."""


def is_single(value: Representation) -> bool:
    """Return whether texts are single vectors: the default, which is left out of keys."""
    return value == Single()
