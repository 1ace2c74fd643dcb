"""Training lists: drawing them from a run, denoising them, and clusters of their queries."""

from collections.abc import Callable
from operator import not_
from typing import Any

from pydantic import Field

from tandem.config.models import Behind, BelowPositive, Candidates
from tandem.config.references import parameters_of
from tandem.registry import Registry
from tandem.stages.base import Kind, Part
from tandem.stages.retrieval import ScoringParams

# A source takes the job, its `PositiveLabels`, and the rows of passages' and queries' ids. It yields (query, ids,
# rows, scores) of each query's documents, best first. Negatives are drawn from these, and positives if answers label.
negatives: Registry[Callable[..., Any]] = Registry(
    "source of negatives", "negatives", "negatives.sources"
)


@parameters_of
class BelowParams(BelowPositive):
    """Positive-aware mining."""

    judged: bool = Field(
        False, description="by the input judges' probabilities; false: by the run's scores"
    )


@parameters_of
class BehindParams(Behind):
    """For which queries lists are drawn, by their ranks in two runs."""

    of_results: bool = Field(
        False, exclude_if=not_, description="ranks do not count a passage with the query's own id"
    )


@parameters_of
class CandidatesParams(Candidates, ScoringParams):
    """Training lists of a split's queries."""

    source: str | None = Field(
        None, description="registered source of negatives; null: the input run, else random"
    )
    seed: int = Field(0, description="seed of the draw")
    ignore_identical_ids: bool = Field(
        False, exclude_if=not_, description="a passage with the query's own id is not a negative"
    )
    below_positive: BelowParams | None = Field(
        None, exclude_if=not_, description="how far below a positive"
    )
    behind: BehindParams | None = Field(
        None, exclude_if=not_, description="only queries that the run answers worse than `ahead`"
    )


KINDS = (
    Kind("candidates", "negatives.candidates:run", CandidatesParams, version=2, env="models", threads="all",
        gpu=("judge",), shard="negatives.candidates:run_shard", part=Part(1024, "queries"), box="Training lists",
        holds="lists", verb="drawing negatives for"),
)  # fmt: skip
