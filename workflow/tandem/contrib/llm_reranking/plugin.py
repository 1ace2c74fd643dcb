"""Register language models that re-rank, and their stage."""

from tandem.config.settings import Block, register_section
from tandem.contrib.llm_reranking.options import (
    LLM_METHODS,
    LlmEntry,
    LlmReranker,
    RerankLlmParams,
    scores_places,
)
from tandem.stages import Kind, register_stage
from tandem.stages.base import Scoring

register_section(
    "llm_rerankers",
    dict[str, LlmEntry],
    {},
    "language models that re-rank: `<first stage>+<name>` is a run",
    Block("method", LLM_METHODS, common=(LlmReranker,)),
)
register_stage(
    Kind(
        "rerank_llm",
        "contrib.llm_reranking.llm_rerank:run",
        RerankLlmParams,
        version=4,
        env="models",
        threads="all",
        gpu=("run",),
        box="Re-ranking",
        scoring=Scoring(of="top", order_if=scores_places),
    ),
    in_runs=False,
)
