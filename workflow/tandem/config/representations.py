"""What a dual encoder makes of a text: one vector, or something else; docs/representations.md says how to add one.

A representation is a section here, a class of models (`@representation`, in `models/`) and a function that plans its
search (`@search`, in `plan/`). Everything else finds these by `type` and never asks which it is.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tandem.config.base import Section, by_value, choice
from tandem.registry import Registry


class Representation(Section):
    """The options of a representation."""

    type: str = Field(description="decides which further keys there are")

    scores_pairs: ClassVar[bool] = False
    """Whether such a model re-ranks, judges and teaches pair by pair, as cross-encoders do."""
    usual: ClassVar[dict[str, object]] = {}
    """Values of a dual encoder's other keys where its entry does not have them."""
    unused: ClassVar[tuple[str, ...]] = ()
    """Keys of an entry of `models` that mean nothing for it: set, they are refused."""


class Single(Representation):
    """One vector a text, pooled from its tokens' states; scores are dot products."""

    type: Literal["single"] = Field("single", description="which representation it is")


class Multi(Representation):
    """A vector a token, late interaction: a query's tokens each find their nearest token of a passage (ColBERT)."""

    type: Literal["multi"] = Field("multi", description="which representation it is")
    dim: int | None = Field(128, ge=1, description="numbers of a token's vector, by a new linear layer; null: no layer")
    query_tokens: int | None = Field(
        32,
        ge=3,
        description="tokens of a query, filled up with [MASK], special ones included; null: its own",
    )
    attend: bool = Field(False, description="the encoder attends to the [MASK] tokens that fill up a query")
    skip_punctuation: bool = Field(True, description="punctuation of passages has no vectors")

    scores_pairs: ClassVar[bool] = True
    usual: ClassVar[dict[str, object]] = {"normalize": True, "temperature": 1.0}
    unused: ClassVar[tuple[str, ...]] = ("pooling", "train.regularise")


class SparseTerms(Representation):
    """A weight for each entry of the vocabulary, mostly 0, by a head that predicts tokens (SPLADE)."""

    type: Literal["sparse"] = Field("sparse", description="which representation it is")
    pooling: Literal["max", "sum"] = Field("max", description="over a text's tokens; sum: as in the first SPLADE")
    activation: Literal["relu", "log1p_relu"] = Field("relu", description="of a logit; log1p_relu: the logarithm twice")
    queries: Literal["encoded", "tokens"] = Field("encoded", description="tokens: 1 for each of its tokens, no model")
    top: int | None = Field(None, ge=1, description="only so many of a text's weights, the largest; null: all")

    usual: ClassVar[dict[str, object]] = {"pooling": "max", "normalize": False, "temperature": 1.0}
    unused: ClassVar[tuple[str, ...]] = ("pooling", "normalize", "train.matryoshka")


class UniCoilTerms(Representation):
    """A weight for each token of a text, by a linear layer on its state (uniCOIL without expansion)."""

    type: Literal["unicoil"] = Field("unicoil", description="which representation it is")
    queries: Literal["encoded", "tokens"] = Field(
        "encoded",
        exclude_if=lambda value: value == "encoded",
        description="tokens: 1 for each of its tokens, no model",
    )

    usual: ClassVar[dict[str, object]] = SparseTerms.usual
    unused: ClassVar[tuple[str, ...]] = SparseTerms.unused


AnyRepresentation = Single | Multi | SparseTerms | UniCoilTerms
REPRESENTATIONS: dict[str, type[Representation]] = by_value("type", Single, Multi, SparseTerms, UniCoilTerms)

# The class of models of each type, a `models.dual.DualEncoder`.
representation: Registry[Any] = Registry("representation", "representation", "models")


def _of_name(value: Any) -> Any:
    """The options of a representation that is named alone, or with options; anything else as it is."""
    name = value.get("type") if isinstance(value, dict) else value
    if isinstance(name, str) and name not in REPRESENTATIONS:
        raise PydanticCustomError("allowed", "{allowed}", {"allowed": ", ".join(REPRESENTATIONS)})
    return {"type": value} if isinstance(value, str) else value


Named = BeforeValidator(_of_name, json_schema_input_type=choice(REPRESENTATIONS) | AnyRepresentation)
ChosenRepresentation = Annotated[AnyRepresentation, Named]
"""A representation by its name alone or with options: `multi`, or `{type: multi, dim: 96}`."""


def is_single(value: Representation) -> bool:
    """Whether texts are single vectors: the default, which is left out of keys."""
    return value == Single()
