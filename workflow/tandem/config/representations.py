"""What a dual encoder makes of a text: one vector, or something else; docs/representations.md says how to add one.

A representation is a section of options (`register_representation`), a class of models (`@representation`) and a
function that plans its search (`@search`). Everything else finds these by `type` and never asks which it is.
"""

import importlib
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from tandem.config.base import ByType, Choice, Extensible, Sections, by_value
from tandem.errors import UserError
from tandem.plugins import Declarations, name_plugin, plugin_being_loaded
from tandem.registry import Registry


class Representation(Extensible):
    """The options of a representation."""

    type: str = Field(description="decides which further keys there are")

    # whether such a model re-ranks, judges and teaches as cross-encoders do
    scores_pairs: ClassVar[bool] = False
    # values of a dual encoder's other keys where its entry does not have them
    usual: ClassVar[dict[str, object]] = {}
    # keys of `models` that mean nothing for it, and are refused
    unused: ClassVar[tuple[str, ...]] = ("train.co_training",)
    # the kind of stage that stores what it makes of texts
    encoding: ClassVar[str] = "embeddings"
    # whether only vectors of the same token are compared, which no index of vectors supports
    matches_tokens: ClassVar[bool] = False

    @classmethod
    def list_classes(cls) -> Sections:
        """See `Extensible.list_classes`; plugins add theirs by `register_representation`."""
        return tuple(REPRESENTATIONS.values()) if cls is Representation else (cls,)

    def list_unused(self) -> tuple[str, ...]:
        """Return the keys of `models` that mean nothing for it with its present options."""
        return self.unused

    @property
    def side_markers(self) -> dict[str, str]:
        """The token in front of a side's texts, by side; here no side has one."""
        return {}

    @property
    def row_size(self) -> int | None:
        """How many numbers a stored row has; None: as many as vectors of the encoder have."""
        return None

    @property
    def learned_first(self) -> str | None:
        """The loss by which a part is learned before other losses can use it; None without such a part."""
        return None

    def check_positions(self, at: str, positions: int) -> None:
        """Refuse options that make texts of the model at `at` longer than its encoder accepts; here there are none."""

    def count_encoders(self) -> int:
        """Return how many encoders read a passage."""
        return 1

    def count_rows(self, side: str, tokens: float) -> float:
        """Return the most rows that are stored for a text of so many tokens, special ones included; here one."""
        return 1.0

    def choose_dtype(self, vectors: str, queries: str) -> str:
        """Return the type in which a side's numbers are stored; here the one for vectors of that side.

        Args:
            vectors: the type that the configuration sets for vectors of that side.
            queries: the type that it sets for vectors of queries; never int8.
        """
        return vectors

    def head(self, vocabulary: int) -> int:
        """Return how many numbers its own layer computes from a token's state; a text keeps few of them.

        It is 0 without such a layer.
        """
        return 0


class Single(Representation):
    """One vector a text, pooled from its tokens' states; scores are dot products."""

    type: Literal["single"] = Field("single", description="which representation it is")


class Unpooled(Representation):
    """A representation for which pooling, vectors of length 1 and cut vectors mean nothing."""

    usual: ClassVar[dict[str, object]] = {"pooling": "max", "normalize": False, "temperature": 1.0}
    unused: ClassVar[tuple[str, ...]] = (
        *Representation.unused,
        "pooling",
        "normalize",
        "train.matryoshka",
    )


REPRESENTATIONS: Declarations[type[Representation]] = Declarations(by_value("type", Single).items())

# The class of models of each type, a `models.dual.DualEncoder`.
representation: Registry[Any] = Registry("representation", "representation", "models")


def register_representation(options: type[Representation]) -> None:
    """Add the options of a representation, whose `type` is a literal; a `UserError` if the name is taken or missing."""
    if plugin_being_loaded():
        importlib.import_module("tandem.extras.plugin_checks").check_representation(options)
    names = by_value("type", options)
    if not names:
        raise UserError(f"representation {options.__name__}: its type is not a Literal of one name")
    for name in names:
        if name in REPRESENTATIONS:
            raise UserError(f"representation {name} is registered twice; rename one of them")
        REPRESENTATIONS[name] = options
        name_plugin(name)


def _spell_out(value: Any) -> Any:
    """Return the options of a representation that is given only by name; refuse a type that is not known."""
    name = value.get("type") if isinstance(value, dict) else value
    if isinstance(name, str) and name not in REPRESENTATIONS:
        raise PydanticCustomError("allowed", "{allowed}", {"allowed": ", ".join(REPRESENTATIONS)})
    return {"type": value} if isinstance(value, str) else value


AnyRepresentation = Annotated[
    Representation, ByType(REPRESENTATIONS, _spell_out, Annotated[str, Choice(REPRESENTATIONS)])
]
"""A representation by its name alone or with options: `sparse`, or `{type: sparse, top: 256}`."""


def is_single(value: Representation) -> bool:
    """Return whether texts are single vectors: the default, which is left out of keys."""
    return value == Single()
