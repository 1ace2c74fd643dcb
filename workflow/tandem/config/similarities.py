"""Scores of a variant of `sparse` in BM25's place, a model per type, which plugins add."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tandem.config.base import ByType, Extensible, Sections, by_value, problem
from tandem.errors import UserError
from tandem.plugins import Declarations, name_plugin

JavaClass = Callable[[str], Any]  # from the full name of a class of Java's to the class


class Similarity(Extensible):
    """A score in BM25's place, over the same index."""

    type: str = Field(description="decides which further keys there are")

    engine: ClassVar[str] = "lucene"  # the engine that computes it
    # the kind of stage whose artifact a search reads in addition to the index; its parameters are those of the score
    stage: ClassVar[str] = ""

    @classmethod
    def list_classes(cls) -> Sections:
        """See `Extensible.list_classes`; plugins add theirs by `register_similarity`."""
        return tuple(SIMILARITIES.values()) if cls is Similarity else (cls,)

    def build_for_lucene(self, java: JavaClass) -> Any:
        """Return Lucene's `Similarity` of the score.

        Raises:
            UserError: another engine computes it.
        """
        raise UserError(f"similarity is {self.type}, which {self.engine} computes, not lucene")


SIMILARITIES: Declarations[type[Similarity]] = Declarations()


def register_similarity(options: type[Similarity]) -> None:
    """Add the options of a score, whose `type` is a literal; a `UserError` if the name is taken."""
    for name in by_value("type", options):
        if name in SIMILARITIES:
            raise UserError(f"similarity {name} is registered twice; rename one of them")
        SIMILARITIES[name] = options
        name_plugin(name)


def _check_type(value: Any) -> Any:
    """Return a value that may be a score; refuse a type that is not known."""
    name = value.get("type") if isinstance(value, dict) else None
    if isinstance(name, str) and name not in SIMILARITIES:
        raise problem(f".type is {name}; allowed: {', '.join(SIMILARITIES)}")
    return value


AnySimilarity = Annotated[Similarity, ByType(SIMILARITIES, _check_type)]
