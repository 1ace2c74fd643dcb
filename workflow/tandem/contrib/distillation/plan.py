"""Plan the stage of teachers' scores of training lists, and refuse teachers that a configuration does not allow."""

from tandem.config.datasets import dataset_format
from tandem.config.losses import Distil
from tandem.config.models import ModelEntry
from tandem.config.references import CROSS_PARTS, Name
from tandem.config.training import SingleTrain
from tandem.contrib.distillation.read_scores import READING_ORDERS, find_what_is_read, list_losses
from tandem.data.sources import Source
from tandem.errors import UserError, nearest
from tandem.extras.list_scores import GIVEN_SCORES, finds_unscored
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

    They are cross-encoders, ensembles, any runs, the scores in the dataset's own lists, or several of these. A joint
    model named as `<model>` or `<model>.reranker` teaches by its cross-encoder, as `<model>.retriever` by its run.
    """
    assert isinstance(name.section, Distil)
    return {"teacher": _score_lists(ctx, name.path, name.section, scope)}


def _score_lists(ctx: Context, where: str, distil: Distil, scope: Scope) -> Stage:
    """Plan the teachers' scores of training lists; `where` is the key that names the teachers."""
    candidates, data = scope.inputs["candidates"], scope.dataset
    names = list(distil.from_)
    crosses = [name for name in names if scores_pairs(ctx, name)]
    runs = [_teaching_run(ctx, name, where, distil, scope) for name in names if name not in crosses]
    upstream = {"dataset": dataset(ctx, data), "candidates": candidates}
    if crosses:
        upstream |= judges(ctx, crosses, where, data, CROSS_PARTS)
    if len(runs) == len(names) == 1 and distil.normalize in (None, "none"):
        return ctx.stage("teacher", data, names[0], {}, upstream | {"run": runs[0]})

    upstream |= {f"run.{number}": stage for number, stage in enumerate(runs)}
    params = ctx.scoring if crosses else {}
    params = params | _mean_of_teachers(ctx, where.rpartition(".")[0], distil, crosses)
    return ctx.stage("teacher", data, "-".join(names), params, upstream)


def _teaching_run(ctx: Context, name: str, where: str, distil: Distil, scope: Scope) -> Stage:
    """Plan the run of a teacher that is not a cross-encoder, or the scores in the dataset's own lists."""
    known = [*ctx.list_names(list_system_blocks()), *ALWAYS_THERE]
    if name == GIVEN_SCORES and name not in known:
        return _plan_given_scores(ctx, where, distil, scope)
    known.append(GIVEN_SCORES)
    is_expression = "+" in name or "@" in name or name.split(".")[0] == "bm25"
    if not is_expression and ctx.model_name(name) not in known:
        raise UserError(f"{where}: {name} is neither a model nor a run{nearest(name, known)}")
    teacher = run(ctx, name, scope.split, where, scope.dataset)
    _check_order(teacher, name, where, distil)
    return teacher


def _check_order(teacher: Stage, name: str, where: str, distil: Distil) -> None:
    """Refuse a teacher that gives only an order if the loss reads more; a plugin's loss need not declare that."""
    is_order = teacher.declared.scoring.order_if
    if is_order is None or not is_order(teacher):
        return
    if find_what_is_read(distil.loss) not in (*READING_ORDERS, ""):
        allowed = ", ".join(list_losses(*READING_ORDERS))
        problem = f"{distil.loss}, which reads scores, but {name} gives an order alone"
        raise UserError(f"{where.rpartition('.')[0]}.loss is {problem}; allowed: {allowed}")


def _plan_given_scores(ctx: Context, where: str, distil: Distil, scope: Scope) -> Stage:
    """Plan the scores in a dataset's own training lists; refuse lists that are known to have none."""
    data, split = scope.dataset, scope.split
    upstream = {"dataset": dataset(ctx, data)}
    entry = ctx.dataset_entry(data)
    at = f"{where}: {GIVEN_SCORES}"
    if entry.source in dataset_format:
        source = dataset_format[entry.source]
        if source.read_lists is Source.read_lists:
            raise UserError(f"{at}: dataset {data} has no training lists of its own")
    if entry.source in finds_unscored and (problem := finds_unscored[entry.source](entry, split)):
        raise UserError(f"{at}: {problem}; give each passage a score")
    params = {"split": split, "as_logits": find_what_is_read(distil.loss) == "logits"}
    return ctx.stage("given_scores", data, f"{GIVEN_SCORES}.{split}", params, upstream)


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
    """Return whether a name is a cross-encoder's or an ensemble's, which score pairs, and not a run's."""
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
    """Refuse distillation without a teacher, other than one weight each, and keys that need a teacher of the lists."""
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
