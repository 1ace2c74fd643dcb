"""The entries of `fusions:`, `pipelines:`, `aggregations:` and `ensembles:`: checks, and parameters for `runs`."""

from math import comb, isclose, isfinite

from tandem.config.datasets import Windows
from tandem.config.references import CROSS_PARTS
from tandem.config.retrieval import METHODS, Fusion
from tandem.config.settings import Settings
from tandem.errors import Unavailable, UserError, nearest, printable
from tandem.plan.context import Context, json_of
from tandem.plan.reported import cutoff, measures, reported_split, run_depth
from tandem.stages.base import Json

SETTINGS = 1001  # the most that are tried: five runs in steps of 0.1
K, MISSING = ("kmax",), ("sum", "kmax")  # methods of aggregation that `k` and `missing` mean something to


def fusion_depth(ctx: Context, name: str, split: str, data: str) -> int:
    """How many passages of a query a fusion keeps; a `UserError` if a reported measure looks deeper."""
    depth = ctx.settings.fusions[name].depth
    if depth is not None and split == reported_split(ctx, data):
        for measure in measures(ctx, data):
            if cutoff(measure) > depth:
                problem = f"fusions.{name}.depth is {depth}, but {measure} looks deeper"
                raise UserError(f"{problem}; raise it, or set score.measures")
    return depth or run_depth(ctx, split, data)


def tuning(ctx: Context, name: str, data: str) -> Json:
    """The parameters by which a fusion is tuned; a `UserError` if this dataset does not allow it."""
    entry, labelled, at = ctx.settings.fusions[name], ctx.dataset_entry(data), f"fusions.{name}"
    method, measure, split = entry.method_keys, entry.tune.measure, entry.tune.split
    if labelled.relevance == "answers":
        problem = f"{at}.{method.tuned} is null: to be tuned, but dataset {data} has answers and no qrels"
        raise Unavailable(f"{problem}; set it")
    depth, own = fusion_depth(ctx, name, split, data), f" and {at}.depth" if entry.depth else ""
    _require_deep(f"{at}.tune.measure", measure, depth, split, own)
    params: Json = {"method": entry.method, "depth": depth, "split": split, "measure": measure}
    params |= json_of(entry.tune, method.candidates) | other_keys(entry)
    return params | {"ignore_identical_ids": labelled.ignore_identical_ids}


def _require_deep(where: str, measure: str, depth: int, split: str, more: str = "") -> None:
    if cutoff(measure) > depth:
        problem = f"{where}: {measure} looks deeper than the {depth} passages of a query on {split}"
        raise UserError(f"{problem}; raise depth.{split}{more}")


def other_keys(entry: Fusion) -> Json:
    """The keys that the method reads besides the one that is tuned."""
    return {key: getattr(entry, key) for key in entry.method_keys.others}


def check_fusion(ctx: Context, name: str) -> None:
    """Refuse an entry with too few runs, or with weights or steps that do not fit."""
    entry, at = ctx.settings.fusions[name], f"fusions.{name}"
    if len(entry.of) < 2:
        raise UserError(f"{at}.of is {list(entry.of)}; two runs or more are fused")
    weights, count, step = entry.weights, len(entry.of), entry.tune.step
    if entry.method != "weighted":
        if weights is not None:
            raise UserError(f"{at}.weights is {list(weights)}, but {entry.method} takes none; used by weighted")
        return
    if weights is not None:
        if len(weights) != count or not any(weights) or not all(map(isfinite, weights)):
            raise UserError(f"{at}.weights is {list(weights)}; allowed: {count} numbers, one a run, not all 0")
        return
    steps = round(1 / step)
    if not isclose(steps * step, 1, rel_tol=1e-6):
        raise UserError(f"{at}.tune.step is {step}, which does not divide 1; allowed are 0.5, 0.25, 0.2, 0.1, …")
    if (points := comb(steps + count - 1, count - 1)) > SETTINGS:
        problem = f"{at}.tune.step is {step}, which makes {points:,} combinations of {count} weights"
        raise UserError(f"{problem}; allowed: {SETTINGS:,}; raise it, fuse fewer runs or set weights")


def unused_keys(settings: Settings) -> list[str]:
    """A line for each key that an entry of `fusions` or `aggregations` sets and its method does not look at.

    They are no mistakes: a sweep over methods has the keys of all of them. A plugin's method of fusion may look at any.
    """
    taken = {name: {method.tuned, *method.others} for name, method in METHODS.items()}
    lines = []
    for name, fusion in settings.fusions.items():
        known, keys = fusion.method in METHODS, fusion.model_fields_set
        for key in [key for key in ("k", "normalize") if known and key in keys - taken[fusion.method]]:
            users = ", ".join(method for method, own in taken.items() if key in own)
            lines.append(f"fusions.{name}.{key} has no effect with method {fusion.method}; used by {users}")
        if known and "tune" in keys and not fusion.is_tuned:
            tuned = f"fusions.{name}.{fusion.method_keys.tuned}"
            lines.append(f"fusions.{name}.tune has no effect: {tuned} is set; with null it is tuned")
    for name, entry in settings.aggregations.items():
        for option, methods in (("k", K), ("missing", MISSING)):
            if option in entry.model_fields_set and getattr(entry, option) is not None and entry.method not in methods:
                problem = f"has no effect with method {entry.method}; used by {', '.join(methods)}"
                lines.append(f"aggregations.{name}.{option} {problem}")
    return lines


def choice(ctx: Context, name: str, data: str) -> Json:
    """The parameters by which a pipeline is chosen; a `UserError` if this dataset does not allow it."""
    entry, labelled, at = ctx.settings.pipelines[name], ctx.dataset_entry(data), f"pipelines.{name}"
    if labelled.relevance == "answers":
        raise Unavailable(f"{at}: a system is chosen by qrels, but dataset {data} has answers")
    depth = run_depth(ctx, entry.split, data)
    _require_deep(f"{at}.measure", entry.measure, depth, entry.split)
    params = {"measure": entry.measure, "split": entry.split, "depth": depth, "depths": depths(ctx, name)}
    return params | {"ignore_identical_ids": labelled.ignore_identical_ids}


def depths(ctx: Context, name: str) -> list[int]:
    """How many passages the systems of a pipeline re-rank, ascending."""
    whole = ctx.settings.rerank.depth
    return sorted(ctx.settings.pipelines[name].depths or {whole, max(1, whole // 2), max(1, whole // 5)})


def members(ctx: Context, name: str) -> list[str]:
    """The systems that a pipeline is chosen from, each first stage before what re-ranks it."""
    named = ctx.settings.pipelines[name].of
    return list(dict.fromkeys(each for system in named for each in (system.rpartition("+")[0], system) if each))


def documents_of(ctx: Context, name: str) -> str:
    """The dataset whose windows an aggregation names."""
    windows = ctx.settings.aggregations[name].windows
    known = {other: entry for other, entry in ctx.datasets.items() if isinstance(entry, Windows)}
    if windows not in known:
        problem = f"aggregations.{name}.windows is {printable(windows)}, which is no dataset of source windows"
        raise UserError(f"{problem}{nearest(windows, list(known))}")
    return known[windows].of


def reranking(ctx: Context, split: str, data: str, where: str = "rerank.depth", depth: int | None = None) -> Json:
    """How cross-encoders re-rank a run, down to `rerank.depth` or to the depth that the key `where` names.

    Raises:
        UserError: runs on the split are not that deep.
    """
    chosen, deepest = depth or ctx.settings.rerank.depth, run_depth(ctx, split, data)
    if chosen > deepest:
        raise UserError(f"{where} is {chosen}, but runs on {split} are {deepest} deep; raise depth.{split}")
    return json_of(ctx.settings.rerank) | {"depth": chosen}


def check_aggregation(ctx: Context, name: str) -> None:
    """Refuse an entry whose keys do not go together."""
    entry, at = ctx.settings.aggregations[name], f"aggregations.{name}"
    if entry.by is None and entry.scores is not None:
        raise UserError(f"{at}.scores is {entry.scores}, but there is no {at}.by: only its scores can be turned")
    if entry.by is not None and entry.missing is not None:
        raise UserError(f"{at}.missing is {entry.missing}, but {at}.by scores every window; leave it out")
    documents_of(ctx, name)


def check_ensemble(ctx: Context, name: str) -> None:
    """Refuse an entry of which a member is no cross-encoder."""
    at, ensembles = f"ensembles.{name}", ctx.settings.ensembles
    for member in ensembles[name].of:
        if member in ensembles:
            raise UserError(f"{at}.of: {member} is an ensemble itself; name its cross-encoders")
        ctx.model(member, f"{at}.of", CROSS_PARTS)
