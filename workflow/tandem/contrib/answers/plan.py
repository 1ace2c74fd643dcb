"""Plan the stage that finds answers, for datasets whose relevance they determine, and for training lists."""

from tandem.plan.context import Context, plans_matches
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.reported import run_depth


@plans_matches("answers")
def match_answers(ctx: Context, ranking: Stage, split: str, data: str) -> Stage:
    """Plan the search for answers in a run's passages."""
    match = ctx.dataset_entry(data).match
    params = {"match": match, "depth": run_depth(ctx, split, data), "split": split, "title": False}
    return ctx.stage(
        "match", data, ranking.name, params, {"dataset": dataset(ctx, data), "run": ranking}
    )
