"""Plan the stages of re-ranking by a model that compares passages."""

from tandem.config.models import COMPARING
from tandem.contrib.comparisons.options import Comparison
from tandem.errors import UserError
from tandem.plan.context import Context, checks_entry, plans_reranking
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.run_expressions import Reranked
from tandem.plan.starting_encoders import judge_with_tokens
from tandem.stages.base import Json


def _find_entry(ctx: Context, name: str) -> Comparison:
    return ctx.settings.entries("comparisons", Comparison)[name]


@plans_reranking("comparisons")
def rerank_by_comparison(ctx: Context, reranked: Reranked) -> Stage:
    """Plan the re-ranking of a run's top by an entry of `comparisons`; entries with the same model share its scores."""
    name = reranked.judge
    data = reranked.data
    check_comparison(ctx, name)
    entry = _find_entry(ctx, name)
    depth = min(reranked.params["depth"], entry.top)
    model, tokens = judge_with_tokens(ctx, entry.by, f"comparisons.{name}.by", data, (COMPARING,))

    upstream = {"dataset": dataset(ctx, data), "run": reranked.pool}
    first_stage = reranked.pool.system
    label = f"{first_stage}+{entry.by}.{reranked.split}"
    compared = ctx.stage(
        "compare",
        data,
        label,
        {**ctx.scoring, "depth": depth},
        {**upstream, "model": model, "tokens": tokens},
    )
    params: Json = {"depth": depth, "aggregate": entry.aggregate}
    return ctx.stage(
        "rerank_compared", data, reranked.name, params, {**upstream, "compared": compared}
    )


@checks_entry("comparisons")
def check_comparison(ctx: Context, name: str) -> None:
    """Refuse an entry of `comparisons` whose model does not compare passages."""
    by = _find_entry(ctx, name).by
    at = f"comparisons.{name}.by"
    entry = ctx.settings.models.get(ctx.model_name(by))
    if entry is not None and entry.sort != COMPARING:
        raise UserError(
            f"{at} is {by}, which scores single passages; name a model with compares: true"
        )
    ctx.check_model(ctx.model_name(by), at, (COMPARING,))
