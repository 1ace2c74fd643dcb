"""Datasets of source `windows`, entries of `aggregations`, and the stages that aggregate windows' scores."""

from tandem.config.datasets import register_source
from tandem.config.settings import register_section
from tandem.contrib.long_documents.options import (
    AggregateParams,
    Aggregation,
    RerankWindowsParams,
    Windows,
)
from tandem.stages import Kind, register_stage
from tandem.stages.base import Scoring

register_source(Windows)
register_section(
    "aggregations",
    dict[str, Aggregation],
    {},
    "runs over windows as runs over their documents",
)
register_stage(
    Kind(
        "rerank_windows",
        "contrib.long_documents.rerank_windows:run",
        RerankWindowsParams,
        version=2,
        env="models",
        threads="all",
        retries=2,
        gpu=("judge",),
        shard="contrib.long_documents.rerank_windows:run_shard",
        box="Re-ranking",
        scoring=Scoring(of="top"),
    ),
    in_runs=False,
)
register_stage(
    Kind(
        "aggregate",
        "contrib.long_documents.windows:run",
        AggregateParams,
        version=2,
        box="Re-ranking",
    ),
    in_runs=False,
)
