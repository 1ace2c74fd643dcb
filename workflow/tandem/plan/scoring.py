"""Plan how runs are measured."""

from tandem.config.datasets import Group
from tandem.errors import Unavailable, UserError
from tandem.plan.context import Context, Upstream, plans_matches, require_depth
from tandem.plan.dataset_stages import dataset, list_members
from tandem.plan.graph import Stage
from tandem.plan.reported import cutoff, measures, reported_split
from tandem.plan.run_expressions import run
from tandem.stages.base import Json


def score(
    ctx: Context,
    system: str,
    where: str,
    data: str,
    by: list[str] | None = None,
    split: str | None = None,
    restricted: Upstream | None = None,
) -> Stage:
    """Plan the measures of a system's run; a group's are averaged over its datasets, each on the split that it reports.

    Args:
        by: measures; None: those that are reported.
        split: the split; None: the one that is reported.
        restricted: `labels`, whose qrels replace the dataset's; `subset`, to whose queries the score is restricted, or
            `others`, whose queries it leaves out.

    Raises:
        UserError: the run has a depth of its own, and a measure looks deeper.
    """
    entry = ctx.dataset_entry(data)
    split = split or reported_split(ctx, data)
    by = by or measures(ctx, data)
    if isinstance(entry, Group):
        list_members(ctx, data)  # refuses one that holds itself
        members = {
            f"member.{i}": score(ctx, system, where, name, by) for i, name in enumerate(entry.of)
        }
        means: Json = {"measures": by, "split": split, "members": list(entry.of)}
        return ctx.stage("score", data, f"{system}.{split}", means, members)

    params = {
        "measures": by,
        "split": split,
        "ignore_identical_ids": entry.ignore_identical_ids,
    }
    collection = dataset(ctx, data)
    ranking = run(ctx, system, split, where, data)
    deepest = max(by, key=cutoff)
    require_depth(ranking, cutoff(deepest), f"{where}: the cutoff of {deepest}")
    upstream = {"dataset": collection, "run": ranking, **(restricted or {})}
    if entry.relevance != "qrels":
        if entry.ignore_identical_ids:
            raise UserError(
                f"datasets.{data}.ignore_identical_ids is true, but relevance is {entry.relevance}, "
                "which counts every result; leave one out"
            )
        upstream["match"] = match_passages(ctx, entry.relevance, ranking, split, data)
    return ctx.stage("score", data, ranking.name, params, upstream)


def match_passages(ctx: Context, rule: str, ranking: Stage, split: str, data: str) -> Stage:
    """Plan the stage that decides by a rule, `answers`, which passages of a run count, if judgements do not decide."""
    if rule not in plans_matches:
        raise Unavailable(f"datasets.{data}: nothing here tells which passages count by {rule}")
    return plans_matches[rule](ctx, ranking, split, data)
