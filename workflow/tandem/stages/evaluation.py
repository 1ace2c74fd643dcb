"""Scores of runs."""

from typing import Literal

from pydantic import Field

from tandem.stages.base import Kind, Params


class ScoreParams(Params):
    """What is measured; a group of datasets has `members` instead of a run."""

    measures: tuple[str, ...] = Field(min_length=1, description="names of ir_measures, such as RR@10")
    split: str = Field("", description="whose queries are scored; a group's members have their own")
    ignore_identical_ids: bool = Field(False, description="drop the result whose document id is the query's (BEIR)")
    members: tuple[str, ...] | None = Field(None, description="datasets of a group, whose means are averaged")


class AverageRankParams(Params):
    """The mean rank of relevant passages in a small collection."""

    split: str = Field(description="whose queries are ranked")


class MatchParams(Params):
    """Relevance by answers found in the passages of a run."""

    split: str = Field(description="whose questions are matched")
    match: Literal["string", "regex", "kilt"] = Field(description="what counts as an answer in a passage")
    depth: int = Field(ge=1, description="passages per question")
    title: bool = Field(description="search in `title . text`, else in the text alone")


SCORE = Kind(name="score", run="evaluation.scores:run", params=ScoreParams, env="data", box="Scores")
AVERAGE_RANK = Kind(
    name="average_rank", run="retrieval.average_rank:run", params=AverageRankParams, env="search", threads="all",
    box="Scores",
)  # fmt: skip
MATCH = Kind(name="match", run="evaluation.matching:run", params=MatchParams, env="data", threads="all", box="Scores")

KINDS = (SCORE, AVERAGE_RANK, MATCH)
