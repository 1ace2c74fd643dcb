"""Plan the stage that chooses k1 and b for a variant of BM25."""

from tandem.config.retrieval import Sparse
from tandem.errors import UserError
from tandem.plan.context import Context, json_of, plans_tuning
from tandem.plan.dataset_stages import require_split
from tandem.plan.graph import Stage
from tandem.plan.lexical import every_field_has_b
from tandem.plan.named_entries import Scope, plan_references
from tandem.plan.reported import cutoff, run_depth
from tandem.stages.base import Json


@plans_tuning("bm25")
def tune_bm25(
    ctx: Context,
    name: str,
    at: str,
    variant: Sparse,
    method: Json,
    upstream: dict[str, Stage],
    data: str,
) -> Stage:
    """Plan the choice of k1 and b, by searches like the variant's."""
    tune = ctx.settings.bm25.tune
    entry = ctx.dataset_entry(data)
    if entry.relevance == "answers":
        raise UserError(f"{at}.tuned needs qrels; dataset {data} has answers")
    require_split(ctx, data, tune.split, f"{at}: is tuned")

    params = json_of(tune) | method
    params["depth"] = cutoff(tune.measure) or run_depth(ctx, tune.split, data)
    params["ignore_identical_ids"] = entry.ignore_identical_ids
    if every_field_has_b(variant):
        params["b"] = params["b"][:1]  # no field uses it: only k1 is chosen
    own = plan_references(ctx, variant, at, Scope(data, tune.split))
    return ctx.stage("tune_bm25", data, f"{name}.{tune.split}", params, upstream | own)
