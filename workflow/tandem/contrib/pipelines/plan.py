"""Plan the stages of pipelines: the choice of a system on a split with labels, and its run."""

from tandem.config.base import Section
from tandem.config.retrieval import Reranks
from tandem.contrib.pipelines.options import Pipeline
from tandem.errors import Unavailable, UserError
from tandem.extras.planning import require_deep
from tandem.plan.context import Context, checks_entry, plans_reranking, plans_run, require_depth
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.reported import reported_split, run_depth, searched
from tandem.plan.run_expressions import Reranked, rerank, reranking_params, run
from tandem.stages.base import Json


def _find_entry(ctx: Context, name: str) -> Pipeline:
    return ctx.settings.entries("pipelines", Pipeline)[name]


@plans_run("pipelines")
def plan_pipeline(ctx: Context, name: str, split: str, where: str, data: str) -> Stage:
    """Plan the choice of the best system, and its run."""
    params = _choice_params(ctx, name, data)
    on = params["split"]
    chosen = ctx.stage(
        "choose_pipeline", data, f"{name}.{on}", params, _plan_systems(ctx, name, on, data)
    )
    upstream = _plan_systems(ctx, name, split, data) | {"chosen": chosen}
    return ctx.stage("pipeline", data, f"{name}.{split}", searched(ctx, split, data), upstream)


def _plan_systems(ctx: Context, name: str, split: str, data: str) -> dict[str, Stage]:
    """Plan the systems from which a pipeline is chosen, at the largest depth, and their first stages.

    First stages are systems, too; each comes before the systems that re-rank it.
    """
    systems = dict[str, None]()
    for system in _find_entry(ctx, name).of:
        first = system.rpartition("+")[0]
        systems |= dict.fromkeys([first, system] if first else [system])

    upstream = {"dataset": dataset(ctx, data)}
    with ctx.opening("pipelines", name):
        for number, system in enumerate(systems):
            if "+" in system:
                upstream[f"first.{number}"], upstream[f"run.{number}"] = _rerank_deepest(
                    ctx, name, system, split, data
                )
            else:
                upstream[f"run.{number}"] = run(ctx, system, split, f"pipelines.{name}.of", data)
    return upstream


def _rerank_deepest(
    ctx: Context, name: str, system: str, split: str, data: str
) -> tuple[Stage, Stage]:
    """Plan the first stage of a system that re-ranks, and its re-ranking at the largest depth of a pipeline."""
    at = f"pipelines.{name}"
    first, _, judge = system.rpartition("+")
    block = ctx.block_of(judge, plans_reranking)
    entry = ctx.settings.entries(block, Section)[judge] if block else None
    if isinstance(entry, Reranks) and entry.orders_together:
        raise UserError(
            f"{at}.of: {judge} orders passages together, no depth of it is a part of another"
        )
    pool = run(ctx, first, split, f"{at}.of", data)
    key = f"{at}.depths" if _find_entry(ctx, name).depths else "rerank.depth"
    deepest = _depths(ctx, name)[-1]
    params = reranking_params(ctx, split, data, key, deepest)
    require_depth(pool, deepest, key)
    return pool, rerank(ctx, Reranked(system, judge, pool, split, f"{at}.of", data, params))


def _choice_params(ctx: Context, name: str, data: str) -> Json:
    """Return the parameters of a pipeline's choice.

    Raises:
        UserError: the dataset does not allow it.
    """
    entry = _find_entry(ctx, name)
    labelled = ctx.dataset_entry(data)
    at = f"pipelines.{name}"
    if labelled.relevance == "answers":
        raise Unavailable(f"{at}: a system is chosen by qrels, but dataset {data} has answers")
    depth = run_depth(ctx, entry.split, data)
    require_deep(ctx, f"{at}.measure", entry.measure, depth, entry.split, data)
    return {
        "measure": entry.measure,
        "split": entry.split,
        "depth": depth,
        "depths": _depths(ctx, name),
        "ignore_identical_ids": labelled.ignore_identical_ids,
    }


def _depths(ctx: Context, name: str) -> list[int]:
    """Return the numbers of passages that the systems of a pipeline re-rank, ascending."""
    whole = ctx.settings.rerank.depth
    return sorted(_find_entry(ctx, name).depths or {whole, max(1, whole // 2), max(1, whole // 5)})


@checks_entry("pipelines")
def check_pipeline(ctx: Context, name: str) -> None:
    """Refuse an entry that cannot be planned on the reported split."""
    data = ctx.settings.dataset
    run(ctx, name, reported_split(ctx, data), f"pipelines.{name}", data)
