"""Options of comparisons of passages, the entries of `comparisons`, and the parameters of their stages."""

from typing import Annotated, Literal

from pydantic import Field

from tandem.config.base import problem
from tandem.config.models import COMPARING, CrossModel
from tandem.config.references import Reference
from tandem.config.retrieval import Reranks
from tandem.stages.base import Params
from tandem.stages.retrieval import ScoringParams

LISTS_PER_PART = 32  # 2,880 comparisons if ten passages of each are compared, 78,400 with fifty
ComparisonAggregate = Literal["sum", "sym_sum", "binary", "min", "max", "copeland"]


class Comparison(Reranks):
    """Re-ranking of a list's top by a model that compares passages; an entry of `comparisons`."""

    orders_together = True
    by: Annotated[str, Reference("cross-encoder", objectives=(COMPARING,))] = Field(
        description="a model with `compares: true`"
    )
    top: int = Field(
        10,
        ge=2,
        description="passages that are compared, each pair in both orders; at most rerank.depth",
    )
    aggregate: ComparisonAggregate = Field(
        "sum", description="how a passage's comparisons become its score; see docs/rerankers.md"
    )


class CompareParams(ScoringParams):
    """Comparisons of all pairs of passages at the top of a run, in both orders."""

    depth: int = Field(10, ge=2, description="passages that are compared per query")


class RerankComparedParams(Params):
    """Re-ranking of a run's top by comparisons of its passages."""

    depth: int = Field(10, ge=2, description="passages that were compared per query")
    aggregate: ComparisonAggregate = Field(
        "sum", description="how a passage's comparisons become its score"
    )


def check_comparing(entry: CrossModel) -> None:
    """Refuse options that a model that compares passages cannot learn with."""
    train = entry.train
    others = ("distil", "in_batch", "budget_minutes", "checkpoints")
    if key := next((key for key in others if getattr(train, key)), None):
        raise problem(
            f".train.{key} is set, which no model that compares passages has; leave it out"
        )
    if train.loss != "pointwise" or train.instance == "row":
        taken = f"loss is {train.loss}" if train.loss != "pointwise" else "instance is row"
        raise problem(
            f".train.{taken}; a model that compares passages takes loss: pointwise, of whole lists"
        )
    if entry.pooling == "segments":
        raise problem(
            ".pooling is segments, of a query and one passage; choose another where passages are compared"
        )
