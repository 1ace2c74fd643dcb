"""Register the source `windows`, the section `aggregations` with its stages, and cross-encoders that read windows."""

from tandem.config.datasets import register_source
from tandem.config.settings import register_section
from tandem.contrib.long_documents.options import (
    AggregateParams,
    Aggregation,
    ParadeOptions,
    RerankWindowsParams,
    Windows,
)
from tandem.stages import Kind, register_stage
from tandem.stages.base import Scoring
from tandem.stages.training import CrossForm, register_cross_form

register_source(Windows)
register_section(
    "aggregations",
    dict[str, Aggregation],
    {},
    "runs over windows as runs over their documents",
)
register_cross_form(
    "parade",
    CrossForm(
        ParadeOptions,
        "PARADE: score documents by the vectors of their windows; null: passages as they are",
        start="contrib.long_documents.parade:start_parade",
        load="contrib.long_documents.parade:load_parade",
        open_tokens="contrib.long_documents.document_tokens:open_documents",
        check_tokens="contrib.long_documents.document_tokens:check_document_tokens",
        find_texts="contrib.long_documents.plan:find_read_windows",
        check_entry="contrib.long_documents.plan:check_parade",
    ),
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
