"""Plan what may stand behind the `+` of a run: cross-encoders, ensembles of them, and scorers of plugins."""

from tandem.config.parsing import read
from tandem.config.references import CROSS_PARTS
from tandem.errors import UserError
from tandem.plan.context import Context, checks_entry, list_blocks, plans_reranking
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.run_expressions import Reranked
from tandem.plan.starting_encoders import judge_with_tokens, judges
from tandem.registry import options_of
from tandem.stages.base import Json
from tandem.stages.retrieval import pair_scorer


@plans_reranking("rerankers")
def rerank_by_model(ctx: Context, reranked: Reranked) -> Stage:
    """Plan the re-ranking of a run by a cross-encoder, trained or published."""
    also = ctx.list_names(block for block in list_blocks(plans_reranking) if block != "rerankers")
    model, tokens = judge_with_tokens(
        ctx, reranked.judge, reranked.where, reranked.data, CROSS_PARTS, also
    )
    return _rerank(ctx, reranked, reranked.params, {"model": model, "tokens": tokens})


@plans_reranking("ensembles")
def rerank_by_ensemble(ctx: Context, reranked: Reranked) -> Stage:
    """Plan the re-ranking of a run by the mean of several cross-encoders."""
    inputs = judges(ctx, [reranked.judge], reranked.where, reranked.data, CROSS_PARTS)
    return _rerank(ctx, reranked, reranked.params, inputs)


@plans_reranking("scorers")
def rerank_by_scorer(ctx: Context, reranked: Reranked) -> Stage:
    """Plan the re-ranking of a run by a plugin's scorer."""
    params = {"depth": reranked.params["depth"], **_scorer_params(ctx, reranked.judge)}
    return _rerank(ctx, reranked, params, {})


def _rerank(ctx: Context, reranked: Reranked, params: Json, inputs: dict[str, Stage]) -> Stage:
    """Plan a re-ranking; `inputs` are those other than the dataset and the run."""
    upstream = {"dataset": dataset(ctx, reranked.data), "run": reranked.pool, **inputs}
    return ctx.stage("rerank", reranked.data, reranked.name, params, upstream)


def _scorer_params(ctx: Context, name: str) -> Json:
    """Return a plugin's scorer and its options, with their defaults."""
    entry = ctx.settings.scorers[name]
    at = f"scorers.{name}"
    if entry.scorer not in pair_scorer:
        known = ", ".join(pair_scorer) or "none; name the plugin that registers it under plugins"
        raise UserError(f"{at}.scorer: {entry.scorer} is not a pair scorer; registered: {known}")
    options = read(options_of(pair_scorer[entry.scorer]), entry.params, f"{at}.params")
    return {"scorer": entry.scorer, "options": options.model_dump(mode="json")}


@checks_entry("ensembles")
def check_ensemble(ctx: Context, name: str) -> None:
    """Refuse an entry with a member that is not a cross-encoder."""
    ensembles = ctx.settings.ensembles
    at = f"ensembles.{name}.of"
    for member in ensembles[name].of:
        if member in ensembles:
            raise UserError(f"{at}: {member} is an ensemble itself; name its cross-encoders")
        ctx.model(member, at, CROSS_PARTS)
