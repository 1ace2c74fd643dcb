"""The parameters of the stage `tune_bm25`."""

from pydantic import Field

from tandem.config.retrieval import Bm25Tuning
from tandem.stages.data import Bm25Variant


class TuneBm25Params(Bm25Tuning, Bm25Variant):
    """Choice of k1 and b on a split with labels."""

    ignore_identical_ids: bool = Field(
        False, description="leave out the document whose id is the query's"
    )
