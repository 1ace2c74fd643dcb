"""Keys by which models learn from queries whose scores are reported, or runs are chosen by them."""

from collections.abc import Iterable, Iterator

from tandem.extras.planning import split_groups
from tandem.plan.graph import Stage, upstream_first
from tandem.plan.plan import Plan
from tandem.stages.training import ModelParams

_Queries = tuple[str, str]  # dataset, split


def list_optimistic_keys(plan: Plan, shown: Iterable[Stage]) -> list[str]:
    """Return a line for each key by which a stage learns from, or is chosen by, queries that it is scored on.

    If an output is not a score, the queries whose scores the configuration reports count for it.
    """
    lines: dict[str, None] = {}
    for stage in split_groups(shown):
        reported = (plan.settings.dataset, plan.split)
        if stage.declared.holds == "scores":
            reported = (stage.dataset, stage.values["split"])
        for behind in upstream_first([stage]):
            for key, queries in _list_keys(plan, behind):
                if queries == reported:
                    line = f"{key} is {queries[1]}, whose scores are reported: they are optimistic"
                    lines[line] = None
    return sorted(lines)


def _list_keys(plan: Plan, stage: Stage) -> Iterator[tuple[str, _Queries]]:
    """Yield each key by which a stage learns from queries or is chosen by them, and these queries."""
    if stage.declared.split_key:
        key = stage.declared.split_key.format(name=stage.system)
        yield key, (stage.dataset, stage.values["split"])
    if isinstance(stage.params, ModelParams):
        at = f"models.{plan.planner.ctx.model_name(stage.name)}"
        for role, lists in stage.upstream.items():
            if role.partition(".")[0] == "candidates":
                yield f"{at}.candidates.split", (stage.dataset, lists.values.get("split", ""))
        if stage.params.train.choose == "dev":
            yield f"{at}.train.choose", (stage.dataset, "dev")
