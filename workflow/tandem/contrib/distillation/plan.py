"""Teachers' scores of training lists as a stage, and which teachers a configuration allows."""

from tandem.config.losses import Distil
from tandem.config.models import ModelEntry
from tandem.config.references import CROSS_PARTS, Name
from tandem.config.training import SingleTrain
from tandem.errors import UserError, nearest
from tandem.plan.context import (
    ALWAYS_THERE,
    Context,
    checks_training,
    list_system_blocks,
    plans_reference,
)
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope
from tandem.plan.run_expressions import run
from tandem.plan.starting_encoders import judges, pair_scoring_dual
from tandem.stages.base import Json


@plans_reference("teacher")
def plan_teacher(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the scores of the input `candidates`, by the teachers that a key of `distil` names.

    They are cross-encoders, ensembles, any runs, or several of them. Of a joint model alone, or as `<model>.reranker`,
    the cross-encoder teaches; as `<model>.retriever`, its run.
    """
    assert isinstance(name.section, Distil)
    return {"teacher": _score_lists(ctx, name.path, name.section, scope)}


def _score_lists(ctx: Context, where: str, distil: Distil, scope: Scope) -> Stage:
    """Plan the teachers' scores of training lists; `where` is the key that names the teachers."""
    candidates, data = scope.inputs["candidates"], scope.dataset
    names = list(distil.from_)
    crosses = [name for name in names if scores_pairs(ctx, name)]
    runs = [_teaching_run(ctx, name, where, scope) for name in names if name not in crosses]
    upstream = {"dataset": dataset(ctx, data), "candidates": candidates}
    if crosses:
        upstream |= judges(ctx, crosses, where, data, CROSS_PARTS)
    if len(runs) == len(names) == 1 and distil.normalize in (None, "none"):
        return ctx.stage("teacher", data, names[0], {}, upstream | {"run": runs[0]})

    upstream |= {f"run.{number}": stage for number, stage in enumerate(runs)}
    params = ctx.scoring if crosses else {}
    params = params | _mean_of_teachers(ctx, where.rpartition(".")[0], distil, crosses)
    return ctx.stage("teacher", data, "-".join(names), params, upstream)


def _teaching_run(ctx: Context, name: str, where: str, scope: Scope) -> Stage:
    """Plan the run of a teacher that is not a cross-encoder."""
    known = [*ctx.list_names(list_system_blocks()), *ALWAYS_THERE]
    is_expression = "+" in name or "@" in name or name.split(".")[0] == "bm25"
    if not is_expression and ctx.model_name(name) not in known:
        raise UserError(f"{where}: {name} is neither a model nor a run{nearest(name, known)}")
    return run(ctx, name, scope.split, where, scope.dataset)


def _mean_of_teachers(ctx: Context, at: str, distil: Distil, crosses: list[str]) -> Json:
    """Return how the scores of several teachers are averaged: the weights of cross-encoders, then those of runs."""
    names = list(distil.from_)
    runs = [name for name in names if name not in crosses]
    if runs and distil.normalize is None:
        why = f"the scores of {runs[0]} may have another scale than the others'"
        raise UserError(
            f"{at}.normalize is missing: {why}; say z_score or min_max, or none if they are alike"
        )
    params: Json = {"normalize": distil.normalize or "none"}
    if distil.weights is None and not runs:
        return params

    of_members: list[float] = []
    of_runs: list[float] = []
    for name, weight in zip(names, distil.weights or [1.0] * len(names), strict=True):
        if name in runs:
            of_runs.append(weight)
        else:
            # An ensemble's members share its weight; without weights each counts as one teacher.
            count = len(ctx.members([name]))
            of_members += [weight / count if distil.weights else weight] * count
    params["weights"] = of_members + of_runs
    return params


def scores_pairs(ctx: Context, name: str) -> bool:
    """Return whether a name is that of a cross-encoder or an ensemble, which score pairs, and not that of a run."""
    if pair_scoring_dual(ctx, name) is not None:
        return True
    if name in ctx.settings.ensembles:
        return True
    entry = ctx.settings.models.get(ctx.model_name(name))
    if entry is None:
        return name in ctx.settings.rerankers
    return entry.objective == "cross" or (
        entry.objective == "joint" and not name.endswith(".retriever")
    )


@checks_training("distil")
def check_distil(ctx: Context, at: str, entry: ModelEntry, data: str) -> None:
    """Refuse distillation without a teacher, other than one weight each, and keys of a teacher of the lists alone."""
    train = entry.train
    assert isinstance(train, SingleTrain)
    distil = train.distil
    assert distil is not None
    if not distil.from_:
        if distil.in_batch is None:
            raise UserError(
                f"{at}.train.distil.from is missing: name a teacher of the lists, or one in_batch"
            )
        own = sorted(distil.model_fields_set - {"from_", "supervision", "in_batch"})
        if own:
            problem = "is of a teacher of the lists, but there is only one in_batch; say from"
            raise UserError(f"{at}.train.distil.{own[0]} {problem}")
    if distil.weights is not None and len(distil.weights) != len(distil.from_):
        numbers = f"{at}.train.distil.weights has {len(distil.weights)} numbers"
        raise UserError(f"{numbers}, but from names {len(distil.from_)} teachers")
    for key in ("margin_bins", "groups"):
        if getattr(train, key) and not distil.from_:
            raise UserError(
                f"{at}.train.{key} needs scores of the lists, but distil has a teacher in_batch alone; say from"
            )
    if entry.candidates.also and distil.from_:
        raise UserError(
            f"{at}.train.distil: a teacher scores one set of lists; leave {at}.candidates.also out"
        )
