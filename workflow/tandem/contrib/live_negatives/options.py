"""Check what live negatives can be combined with, and define the parameters of the stage `positive_vectors`."""

from typing import Literal

from pydantic import Field

from tandem.config.base import problem
from tandem.config.losses import OWN_LOSSES
from tandem.config.training import DualTrain
from tandem.stages import Params


class PositiveVectorsParams(Params):
    """Vectors of queries' relevant passages in place of the queries' own."""

    side: Literal["queries"] = Field("queries", description="the side whose vectors they replace")
    split: str = Field(description="whose queries")


def check_live(train: DualTrain) -> None:
    """Refuse what live negatives do not learn from, and a loss that is not of lists."""
    if train.in_batch:
        raise problem(
            ".in_batch is true, but live_negatives are what a query learns from; set in_batch: false"
        )
    others = (
        "distil",
        "passage_centric",
        "regularise",
        "matryoshka",
        "self_teaching",
        "topics",
        "budget_minutes",
    )
    if key := next((key for key in others if getattr(train, key)), None):
        raise problem(
            f".{key} is set, but live_negatives learns from what it retrieves alone; leave it out"
        )
    if train.loss in OWN_LOSSES or train.sizes == "data":
        raise problem(
            f".live_negatives needs a loss of lists and sizes: given; loss is {train.loss}"
        )
