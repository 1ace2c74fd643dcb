"""Plan the passages of live negatives, and the run that searches with relevant passages in place of their queries."""

from tandem.config.models import Candidates, ModelEntry
from tandem.config.references import Name
from tandem.errors import UserError
from tandem.plan.context import Context, plans_objective, plans_reference, start_of
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope
from tandem.plan.reported import searched
from tandem.plan.searches import plan_encoding
from tandem.plan.starting_encoders import tokens_of_dual
from tandem.stages.base import Json


@plans_objective("live_negatives")
def plan_frozen_passages(
    ctx: Context, at: str, entry: ModelEntry, data: str, params: Json
) -> tuple[dict[str, Stage], Json]:
    """Plan the passages' vectors in which live negatives are searched, by the model that the training starts from."""
    if entry.candidates.refresh:
        raise UserError(
            f"{at}.candidates.refresh is set, but live_negatives learns from what it retrieves, and reads no list's "
            "negatives; leave it out"
        )
    start = start_of(entry, "dual")
    if not ctx.has_model(start):
        raise UserError(
            f"{at}.init is {start}, an encoder; live_negatives starts from a trained dual encoder"
        )
    if params["shared"]:
        raise UserError(
            f"{at}.shared is true, but live_negatives trains the query's tower alone; set it to false"
        )
    passages = plan_encoding(ctx, "embeddings", start, f"{at}.init", data)
    return {"passages": passages}, ctx.execution("search_memory")


@plans_reference("look_ahead")
def plan_look_ahead(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the search with the vectors of a split's relevant passages instead of its queries', for training lists."""
    at = name.path.rpartition(".")[0]
    if isinstance(name.section, Candidates):
        check_lists_ahead(at, name.section)
    (system,) = name.names
    data = scope.dataset
    split = scope.split
    passages = plan_encoding(ctx, "embeddings", system, name.path, data)
    upstream = {"dataset": dataset(ctx, data), "passages": passages}
    label = f"{passages.upstream['model'].name}.{split}"
    model = passages.upstream["model"]
    both = {"model": model, "tokens": tokens_of_dual(ctx, system, model, data)}
    queries = ctx.stage("positive_vectors", data, label, {"split": split}, upstream | both)
    how = ctx.execution("engine", "search_memory")
    found = upstream | {"queries": queries}
    run = ctx.stage("retrieve", data, f"{label}.look_ahead", searched(ctx, split, data), found, how)
    return {name.role: run}


def check_lists_ahead(at: str, lists: Candidates) -> None:
    """Refuse labels without a known positive, and what needs a query's own scores or ranks."""
    if lists.labels != "qrels":
        raise UserError(
            f"{at}.look_ahead: labels is {lists.labels}, but it searches with a known positive; set qrels"
        )
    if lists.below_positive is not None and lists.below_positive.by is None:
        raise UserError(
            f"{at}.below_positive: scores of look_ahead are of positives, not queries; say by: a cross-encoder"
        )
    if lists.behind is not None:
        raise UserError(f"{at}.behind: look_ahead ranks no passage for a query; draw from a run")
