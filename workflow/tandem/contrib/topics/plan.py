"""Plan the stage that clusters the training queries."""

from tandem.config.models import ModelEntry
from tandem.config.references import Name
from tandem.errors import UserError
from tandem.plan.context import Context, checks_training, json_of, plans_reference
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope
from tandem.plan.searches import plan_encoding


@plans_reference("topics")
def plan_topics(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the clusters of the queries that have lists; a key of `topics` names the dual encoder of their vectors."""
    system = name.names[0]
    queries = plan_encoding(ctx, "embeddings", system, name.path, scope.dataset, scope.split)
    params = {**json_of(name.section), "seed": scope.seed}
    inputs = {"dataset": dataset(ctx, scope.dataset), "queries": queries}
    return {"topics": ctx.stage("topics", scope.dataset, system, params, inputs)}


@checks_training("topics")
def check_topics(ctx: Context, at: str, entry: ModelEntry, data: str) -> None:
    """Refuse lists of several splits, since only the queries of one split have topics."""
    lists = entry.candidates
    for number, more in enumerate(lists.also):
        if more.split != lists.split:
            of = f"lists are of {lists.split}, whose queries train.topics clusters"
            raise UserError(
                f"{at}.candidates.also.{number}.split is {more.split}, but the other {of}; say {lists.split}"
            )
