"""Published re-rankers as stages."""

from tandem.errors import UserError
from tandem.models.heads import check_reranker
from tandem.plan.context import Context, require_name
from tandem.plan.encoders import encoder, folder_of
from tandem.plan.fusions import is_taken
from tandem.plan.graph import Stage


def plan_reranker(ctx: Context, name: str) -> Stage:
    """The stage that makes a published cross-encoder one of the project's; its files are pinned as an encoder's are."""
    entry, settings = ctx.settings.rerankers[name], ctx.settings
    require_name("rerankers", name)
    if is_taken(ctx, "rerankers", name) or name in settings.encoders or name in settings.scorers:
        raise UserError(f"rerankers.{name} has the name of another model or run; name it otherwise")
    if entry.source != "hub":
        check_reranker(folder_of(entry))
    start = encoder(ctx, name)
    return ctx.stage("reranker", start.dataset, start.name, {}, {"encoder": start})
