"""Options of pipelines, the entries of `pipelines`, and the parameters of their stages."""

from pydantic import Field

from tandem.config.base import Count, Distinct, Items
from tandem.config.references import RunRef
from tandem.config.retrieval import Choosing
from tandem.stages.retrieval import RunParams


class Pipeline(Choosing):
    """The best of several systems on dev, an entry of `pipelines`; first stages count as systems, too."""

    of: Items[RunRef] = Field(
        min_length=1, description="systems to choose from; among equally good ones, the first"
    )
    depths: Distinct[Count] | None = Field(
        None, description="re-ranked passages to try; null: rerank.depth, 1/2, 1/5"
    )
    measure: str = Field("nDCG@10", description="the measure that is maximised")
    split: str = Field("dev", description="whose queries decide")

    @property
    def chosen_on(self) -> str:
        """See `Choosing`."""
        return self.split

    @property
    def chosen_by(self) -> dict[str, str]:
        """See `Choosing`."""
        return {"measure": self.measure}


class PipelineParams(RunParams):
    """The run of the system that was chosen on another split."""


class ChoosePipelineParams(RunParams):
    """Choice of a system, and of how much of a run is re-ranked, on a split with labels."""

    measure: str = Field("nDCG@10", description="what is maximised")
    depths: tuple[int, ...] = Field(
        min_length=1, description="numbers of re-ranked passages to try"
    )
    ignore_identical_ids: bool = Field(
        False, description="leave out the document whose id is the query's"
    )
