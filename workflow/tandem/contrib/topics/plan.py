"""The clusters of the training queries, as a stage."""

from tandem.config.references import Name
from tandem.plan.context import Context, json_of, plans_reference
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope
from tandem.plan.searches import plan_encoding


@plans_reference("topics")
def plan_topics(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the clusters of the training queries, by the dual encoder that a key of `topics` names."""
    system = name.names[0]
    queries = plan_encoding(ctx, "embeddings", system, name.path, scope.dataset, "train")
    params = {**json_of(name.section), "seed": scope.seed}
    inputs = {"dataset": dataset(ctx, scope.dataset), "queries": queries}
    return {"topics": ctx.stage("topics", scope.dataset, system, params, inputs)}
