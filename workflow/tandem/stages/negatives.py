"""Training lists: drawing them from a run, denoising them, and a teacher's scores of them."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from tandem.config.base import Model
from tandem.config.training import Backfill
from tandem.registry import Registry
from tandem.stages.base import Kind
from tandem.stages.retrieval import ScoringParams

# A source takes the job, its `Labels`, and the rows of passages' and queries' ids. It gives (query, ids, rows, scores)
# of each query's documents, best first: negatives are drawn from them, and positives where answers label.
negatives: Registry[Callable[..., Any]] = Registry("source of negatives", "negatives", "negatives.sources")


class Denoising(Model):
    """What a judge's probability makes of a passage."""

    negative_below: float = Field(0.1, description="a passage below it is a negative")
    positive_above: float | None = Field(0.9, description="a passage above it is a positive; null: none is")
    hybrid: bool = Field(False, description="also keep the list without denoising")
    backfill: Backfill | None = Field(None, description="ranks to fill up from, unjudged")


class CandidatesParams(ScoringParams):
    """Training lists of a split's queries."""

    split: str = Field("train", description="whose queries")
    first_rank: int = Field(1, ge=1, description="first rank that may become a negative")
    depth: int = Field(50, ge=1, description="last rank that may become a negative; of random lists their length")
    negatives: int | None = Field(None, ge=1, description="negatives per query; null: all")
    negatives_per: Literal["query", "positive"] = Field("query", description="what `negatives` counts for")
    near_duplicates: float | None = Field(None, gt=0, le=1, description="similarity to a positive that bars a negative")
    queries: int | None = Field(None, ge=1, description="draw lists for this many queries only")
    labels: Literal["qrels", "answers", "judge"] = Field("qrels", description="what makes a passage a positive")
    bar_answers: bool = Field(False, description="no passage that holds an answer is a negative")
    take: Literal["random", "first"] = Field("random", description="which negatives, where there are more than needed")
    source: str | None = Field(None, description="registered source of negatives; null: the input run, else random")
    seed: int = Field(0, description="of the draw")
    denoise: Denoising | None = Field(None, description="denoising by the input judges")


class TeacherParams(ScoringParams):
    """A teacher's scores of training lists."""


CANDIDATES = Kind(
    name="candidates", params=CandidatesParams, run="negatives.candidates:run",
    shard="negatives.candidates:run_shard", env="models", threads="all", gpu=("judge",), box="Training lists",
)  # fmt: skip
TEACHER = Kind(
    name="teacher", params=TeacherParams, run="negatives.teacher:run", shard="negatives.teacher:run_shard",
    env="models", threads="all", retries=2, gpu=("judge",), box="Training lists",
)  # fmt: skip

KINDS = (CANDIDATES, TEACHER)
