"""The parameters of the stage `teacher`."""

from operator import not_

from pydantic import Field

from tandem.config.base import equals
from tandem.config.retrieval import Normalization
from tandem.stages.retrieval import ScoringParams


class TeacherParams(ScoringParams):
    """The scores of training lists by a teacher, or the weighted mean of several teachers' scores."""

    weights: tuple[float, ...] = Field(
        (), exclude_if=not_, description="of several: the judges', then the runs'"
    )
    normalize: Normalization = Field(
        "none", exclude_if=equals("none"), description="of each one's scores within a list"
    )
