"""The source of reduced datasets, and the parameters of the stage `average_rank`."""

from operator import not_
from typing import Any, Literal, Self

from pydantic import Field

from tandem.config.datasets import Inheriting, SplitsOf
from tandem.config.references import DatasetRef, RunRef
from tandem.stages.base import Params


class Reduced(Inheriting):
    """The dev queries of a dataset over a part of its passages."""

    source: Literal["reduced"]
    of: DatasetRef = Field(description="the dataset")
    from_: RunRef = Field(
        "bm25",
        alias="from",
        description="the run whose top passages stay, in addition to all relevant ones",
    )
    depth: int = Field(100, ge=1, description="how many of them per query")
    others: int = Field(
        0, ge=0, description="further passages per query, drawn by a hash of their ids"
    )

    def follow_splits(self, splits_of: SplitsOf) -> set[str] | None:
        """Return only dev."""
        return {"dev"}

    def complete(self, name: str, update: dict[str, Any]) -> Self:
        """Return the entry with what it takes over, except measures and reported split, which are of other queries."""
        own = {"measures": self.measures, "score_split": self.score_split}
        return super().complete(name, update | own)


class AverageRankParams(Params):
    """The mean rank of relevant passages in a small collection."""

    split: str = Field(description="whose queries are ranked")
    ignore_identical_ids: bool = Field(False, exclude_if=not_, description="as for the score")
