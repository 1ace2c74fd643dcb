"""Plan the stages of re-ranking by language models."""

from tandem.contrib.llm_reranking.options import LlmReranker
from tandem.extras.language_models.plan import check_llm, llm_stage
from tandem.plan.context import Context, checks_entry, plans_reranking
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.run_expressions import Reranked


def _find_entry(ctx: Context, name: str) -> LlmReranker:
    return ctx.settings.entries("llm_rerankers", LlmReranker)[name]


@plans_reranking("llm_rerankers")
def rerank_by_llm(ctx: Context, reranked: Reranked) -> Stage:
    """Plan the re-ranking of a run by a language model, which may read fewer passages than cross-encoders do."""
    params, execution = llm_stage(
        _find_entry(ctx, reranked.judge), f"llm_rerankers.{reranked.judge}"
    )
    deepest = reranked.params["depth"]
    params["depth"] = min(deepest, params.pop("top", deepest))
    upstream = {"dataset": dataset(ctx, reranked.data), "run": reranked.pool}
    return ctx.stage("rerank_llm", reranked.data, reranked.name, params, upstream, execution)


@checks_entry("llm_rerankers")
def check_llm_reranker(ctx: Context, name: str) -> None:
    """Refuse an entry whose model does not exist."""
    check_llm(_find_entry(ctx, name), f"llm_rerankers.{name}")
