"""Plan fusions: several runs become one, with settings that are fixed or chosen on dev."""

from math import comb, isclose, isfinite

from tandem.config.settings import Settings
from tandem.contrib.fusion.options import METHODS, Fusion
from tandem.errors import Unavailable, UserError
from tandem.extras.planning import require_deep, why_on_no_split
from tandem.plan.context import Context, checks_entry, json_of, lists_unused_keys, plans_run
from tandem.plan.dataset_stages import dataset, require_split
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references
from tandem.plan.reported import cutoff, measures, reported_split, run_depth
from tandem.stages.base import Json

MOST_COMBINATIONS = 1001  # most combinations of weights to try: those of five runs in steps of 0.1


def _find_entry(ctx: Context, name: str) -> Fusion:
    return ctx.settings.entries("fusions", Fusion)[name]


@plans_run("fusions")
def plan_fusion(ctx: Context, name: str, split: str, where: str, data: str) -> Stage:
    """Plan the run that fuses others, and, if its settings are null, their choice on a split with labels."""
    entry = _find_entry(ctx, name)
    params: Json = {"method": entry.method, "depth": _depth(ctx, name, split, data), "split": split}
    params |= _keys_beside_tuned(entry)
    upstream = _plan_members(ctx, name, split, data)

    if entry.is_tuned:
        upstream["tuned"] = _plan_tuning(ctx, name, data)
    elif key := entry.method_keys.tuned:
        params |= json_of(entry, key)
    return ctx.stage("fuse", data, f"{name}.{split}", params, upstream)


def _plan_members(ctx: Context, name: str, split: str, data: str) -> dict[str, Stage]:
    """Plan the inputs of a fusion: the dataset and the runs."""
    with ctx.opening("fusions", name):
        runs = plan_references(ctx, _find_entry(ctx, name), f"fusions.{name}", Scope(data, split))
    return {"dataset": dataset(ctx, data), **runs}


def _plan_tuning(ctx: Context, name: str, data: str) -> Stage:
    """Plan the choice of a fusion's settings."""
    # checked before its runs: if tuning is impossible, this is the reason to report
    params = _tuning_params(ctx, name, data)
    split = params["split"]
    require_split(ctx, data, split, f"fusions.{name}.tune.split: searches")
    return ctx.stage(
        "tune_fusion", data, f"{name}.{split}", params, _plan_members(ctx, name, split, data)
    )


def _tuning_params(ctx: Context, name: str, data: str) -> Json:
    """Return the parameters of a fusion's tuning.

    Raises:
        UserError: the dataset does not allow it.
    """
    entry = _find_entry(ctx, name)
    at = f"fusions.{name}"
    labelled = ctx.dataset_entry(data)
    keys = entry.method_keys
    if labelled.relevance == "answers":
        problem = (
            f"{at}.{keys.tuned} is null: to be tuned, but dataset {data} has answers and no qrels"
        )
        raise Unavailable(f"{problem}; set it")

    split = entry.tune.split
    depth = _depth(ctx, name, split, data)
    own_depth = f" and {at}.depth" if entry.depth else ""
    require_deep(ctx, f"{at}.tune.measure", entry.tune.measure, depth, split, data, own_depth)

    params: Json = {
        "method": entry.method,
        "depth": depth,
        "split": split,
        "measure": entry.tune.measure,
    }
    params |= json_of(entry.tune, keys.candidates)
    params |= _keys_beside_tuned(entry)
    params["ignore_identical_ids"] = labelled.ignore_identical_ids
    return params


def _depth(ctx: Context, name: str, split: str, data: str) -> int:
    """Return how many passages per query a fusion keeps.

    Raises:
        UserError: a reported measure needs more.
    """
    depth = _find_entry(ctx, name).depth
    if depth is None:
        return run_depth(ctx, split, data)
    if split == reported_split(ctx, data):
        for measure in measures(ctx, data):
            if cutoff(measure) > depth:
                problem = f"fusions.{name}.depth is {depth}, but {measure} looks deeper"
                raise UserError(f"{problem}; raise it, or set score.measures")
    return depth


def _keys_beside_tuned(entry: Fusion) -> Json:
    """Return the values of the keys that the method reads in addition to the tuned key."""
    return {key: getattr(entry, key) for key in entry.method_keys.others}


@checks_entry("fusions")
def check_fusion(ctx: Context, name: str) -> None:
    """Refuse an entry whose keys do not fit together, or whose runs are not available on any split."""
    _check_weights(name, _find_entry(ctx, name))
    data = ctx.settings.dataset
    reasons = why_on_no_split(ctx, data, lambda split: _plan_members(ctx, name, split, data))
    if reasons:
        raise reasons[0]
    if _find_entry(ctx, name).is_tuned:
        _tuning_params(ctx, name, data)


def _check_weights(name: str, entry: Fusion) -> None:
    """Refuse an entry with too few runs, or with weights or steps that do not fit."""
    at = f"fusions.{name}"
    weights = entry.weights
    runs = len(entry.of)
    if runs < 2:
        raise UserError(f"{at}.of is {list(entry.of)}; two runs or more are fused")
    if entry.method != "weighted":
        if weights is not None:
            raise UserError(
                f"{at}.weights is {list(weights)}, but {entry.method} takes none; used by weighted"
            )
        return
    if weights is not None:
        fit = len(weights) == runs and any(weights) and all(map(isfinite, weights))
        if not fit:
            raise UserError(
                f"{at}.weights is {list(weights)}; allowed: {runs} numbers, one a run, not all 0"
            )
        return

    step = entry.tune.step
    steps = round(1 / step)
    if not isclose(steps * step, 1, rel_tol=1e-6):
        raise UserError(
            f"{at}.tune.step is {step}, which does not divide 1; allowed are 0.5, 0.25, 0.2, 0.1, …"
        )
    # ways to share `steps` equal parts among the runs
    combinations = comb(steps + runs - 1, runs - 1)
    if combinations > MOST_COMBINATIONS:
        problem = (
            f"{at}.tune.step is {step}, which makes {combinations:,} combinations of {runs} weights"
        )
        raise UserError(
            f"{problem}; allowed: {MOST_COMBINATIONS:,}; raise it, fuse fewer runs or set weights"
        )


@lists_unused_keys("fusions")
def list_unused_fusion_keys(settings: Settings) -> list[str]:
    """Return a line for each key that an entry of `fusions` sets, but its method does not use.

    Such keys are not mistakes: a sweep over methods has the keys of all methods. A plugin's method may use any key.
    """
    keys_of = {method: {keys.tuned, *keys.others} for method, keys in METHODS.items()}
    lines = []
    for name, entry in settings.entries("fusions", Fusion).items():
        if entry.method not in METHODS:
            continue
        written = entry.model_fields_set
        for key in ("k", "normalize"):
            if key in written and key not in keys_of[entry.method]:
                users = ", ".join(method for method, keys in keys_of.items() if key in keys)
                lines.append(
                    f"fusions.{name}.{key} has no effect with method {entry.method}; used by {users}"
                )
        if "tune" in written and not entry.is_tuned:
            tuned = f"fusions.{name}.{entry.method_keys.tuned}"
            lines.append(
                f"fusions.{name}.tune has no effect: {tuned} is set; with null it is tuned"
            )
    return lines
