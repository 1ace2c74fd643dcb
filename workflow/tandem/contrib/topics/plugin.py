"""Register the stage that clusters training queries, and batches with queries of one cluster."""

from tandem.config.training import ARRANGEMENTS
from tandem.contrib.topics.options import TopicsParams
from tandem.stages import Kind, register_stage

ARRANGEMENTS["topics"] = "contrib.topics.topic_batches:arrange_by_topic"
register_stage(
    Kind(
        "topics",
        "contrib.topics.query_clusters:run",
        TopicsParams,
        env="search",
        threads="all",
        box="Training lists",
        verb="clustering queries of",
    ),
    in_runs=False,
)
