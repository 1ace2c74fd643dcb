"""The chain of a model's checkpoints.

With `train.checkpoints: N` a training is a chain of N stages `<model>.1` … `<model>.N`, each a system like any other;
the stage `model` takes one of them over, or its start `<model>.0`.
"""

from dataclasses import replace

from tandem.config.models import ModelEntry
from tandem.contrib.validation.plan import check_checkpoints, list_validated
from tandem.errors import UserError
from tandem.plan.candidate_lists import training_lists
from tandem.plan.context import Context, checks_lists, plans_training
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references
from tandem.stages.base import Json


@checks_lists("refresh")
def check_refresh(at: str, entry: ModelEntry) -> None:
    """Refuse lists that are drawn anew for a training without checkpoints, or for one whose length they decide."""
    lists = entry.candidates
    train = entry.train
    if any(more.refresh for more in lists.also):
        raise UserError(
            f"{at}.candidates.also: lists that are joined stay as they are; refresh is of candidates itself"
        )
    if lists.refresh is None:
        return
    if entry.objective != "dual":
        raise UserError(
            f"{at}.candidates.refresh is of dual encoders, which retrieve; {at} is {entry.objective}"
        )
    if (train.checkpoints or 0) < 2:
        raise UserError(
            f"{at}.candidates.refresh needs train.checkpoints, of which each has its own lists; set it to 2 or more"
        )
    if train.steps is None:
        raise UserError(
            f"{at}.candidates.refresh needs train.steps: later lists must not change how long is trained"
        )
    if train.budget_minutes is not None:
        raise UserError(
            f"{at}.candidates.refresh: train.budget_minutes is {train.budget_minutes:g}, by which each draw decides "
            "how long is trained; set it to null, and say train.steps"
        )
    if lists.labels != "qrels":
        raise UserError(
            f"{at}.candidates.refresh: labels is {lists.labels}, by which each draw has other queries; set qrels"
        )
    if lists.behind is not None:
        raise UserError(
            f"{at}.candidates.refresh: behind is set, by which each draw has other queries; leave one out"
        )


@plans_training("checkpoints")
def plan_checkpoints(
    ctx: Context,
    name: str,
    scope: Scope,
    params: Json,
    upstream: dict[str, Stage | None],
    execution: Json,
) -> Stage:
    """Plan the chain of a model's checkpoints, and the stage that takes over the last or the best of them.

    `scope`, `params`, `upstream` and `execution` are those of the training in one piece.
    """
    data = scope.dataset
    train = ctx.settings.models[name].train
    count = train.checkpoints or 0
    check_checkpoints(ctx, name, data, count)
    # A segment depends on where it ends, but not on which checkpoint is taken over, or how many there are in all.
    segment = {
        key: value
        for key, value in params["train"].items()
        if key not in ("checkpoints", "patience")
    }
    segment["choose"] = "last"

    chain: dict[int, Stage] = {}
    ctx.checkpoints[name] = chain
    # the start is a checkpoint if it may be the best
    first_number = 0 if train.choose == "dev" else 1
    for number in range(first_number, count + 1):
        after = {"after": chain[number - 1]} if number > 1 else {}
        own = params | {"train": segment, "until": [number, count]}
        inputs = upstream | _refreshed_lists(ctx, name, number, scope) | after
        chain[number] = ctx.stage("checkpoint", data, f"{name}.{number}", own, inputs, execution)
    validated = list_validated(ctx, name)

    taken = {f"checkpoint.{number}": stage for number, stage in chain.items()}
    if train.choose == "dev":
        decisive = validated[: len(chain)]  # those of the part that decides
        taken |= {
            f"validation.{number}": value.reduced
            for number, value in zip(chain, decisive, strict=True)
        }
    return ctx.stage("model", data, name, params, taken)


def _refreshed_lists(ctx: Context, name: str, number: int, scope: Scope) -> dict[str, Stage]:
    """Plan the lists of a checkpoint from what an earlier one retrieves, and what is computed from the lists.

    Return nothing if they are those of the first checkpoint.
    """
    at = f"models.{name}"
    entry = ctx.settings.models[name]
    refresh = entry.candidates.refresh
    if refresh is None:
        return {}
    searching = number - 1 - refresh.lag  # the checkpoint that retrieves
    if searching < 1:
        return {}
    lists = entry.candidates.model_copy(update={"from_": f"{name}.{searching}"})
    drawn = training_lists(ctx, at, lists, scope.dataset)
    return drawn | plan_references(ctx, entry, at, replace(scope, inputs=drawn))
