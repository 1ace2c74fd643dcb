"""The parameters of the stage that finds answers."""

from pydantic import Field

from tandem.config.datasets import AnswerMatch
from tandem.stages.base import Params


class MatchParams(Params):
    """Relevance by answers found in the passages of a run."""

    split: str = Field(description="whose questions are matched")
    match: AnswerMatch = Field(description="what counts as an answer in a passage")
    depth: int = Field(ge=1, description="passages per question")
    title: bool = Field(description="search in `title . text`, else only in the text")
