"""Indexes of vectors, and of whatever else packages store of texts: one model per type; packages add types."""

import importlib
from typing import ClassVar

from pydantic import Field

from tandem.config.base import Section, by_value
from tandem.errors import UserError
from tandem.plugins import Declarations, name_plugin, plugin_being_loaded

SIGN_INDEX = "LSH"  # FAISS's name of an index of signs


class AnyIndex(Section):
    """Describe an index of anything, of vectors or not."""

    # what it searches, in words
    searches: ClassVar[str]

    type: str = Field(description="decides which further keys there are")


class Index(AnyIndex):
    """An entry of `indexes`: the keys of every type."""

    searches: ClassVar[str] = "vectors"
    # the kinds of the stages that build it, and that search single vectors through it
    built_by: ClassVar[str]
    searched_by: ClassVar[str]

    rescore: bool = Field(
        True, description="rank by exact scores of the vectors; false: by the index's own"
    )
    rescore_factor: int = Field(2, ge=1, description="ask the index for this many times the depth")
    recall_queries: int = Field(
        100, ge=0, description="queries whose recall against exact search is measured"
    )


# By type.
INDEXES: Declarations[type[AnyIndex]] = Declarations()


def register_index(*types: type[AnyIndex]) -> None:
    """Add types of entries of `indexes`, each by its literal `type`.

    Raises:
        UserError: another index has the type.
    """
    if plugin_being_loaded():
        importlib.import_module("tandem.extras.plugin_checks").check_index_types(*types)
    for name, model in by_value("type", *types).items():
        if name in INDEXES:
            raise UserError(f"type {name} of indexes is registered twice; rename one of them")
        INDEXES[name] = model
        name_plugin(name)
