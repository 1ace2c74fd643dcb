"""Parameters of the stage `topics`."""

from pydantic import Field

from tandem.stages.base import Params


class TopicsParams(Params):
    """Clusters of the training queries."""

    clusters: int = Field(ge=2, description="how many")
    seed: int = Field(description="of the queries from which they start")
