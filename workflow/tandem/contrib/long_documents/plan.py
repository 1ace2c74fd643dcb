"""Plan runs over windows of documents that are aggregated to runs over the documents (`aggregations`)."""

from tandem.config.datasets import CutDocuments
from tandem.config.models import CrossModel, ModelEntry
from tandem.config.references import CROSS_PARTS
from tandem.config.settings import Settings
from tandem.contrib.long_documents.options import (
    PARADE_POOLINGS,
    Aggregation,
    ParadeOptions,
    Windows,
)
from tandem.data.splits import VALIDATED
from tandem.errors import Unavailable, UserError, nearest, printable
from tandem.extras.planning import why_on_no_split
from tandem.plan.context import (
    Context,
    checks_entry,
    json_of,
    lists_unused_keys,
    plans_dataset,
    plans_run,
    require_depth,
)
from tandem.plan.dataset_stages import dataset, make_dataset
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references
from tandem.plan.reported import run_depth
from tandem.plan.run_expressions import reranking_params, run
from tandem.plan.starting_encoders import judges
from tandem.stages.base import Json

# Option of `aggregations` → the methods that use it.
METHODS_BY_OPTION = {"k": ("kmax",), "missing": ("sum", "kmax")}
# Keys that give a dataset other queries than the dataset from which it is made.
_OF_QUERIES = (
    "train_queries",
    "dev_queries",
    "test_queries",
    "dev_from_train",
    "dev_from_train_most",
    "train_from_test",
)


@plans_dataset("windows")
def plan_windows(ctx: Context, name: str, entry: Windows) -> Stage:
    """Return the stage of a dataset of windows."""
    made_of = plan_references(ctx, entry, f"datasets.{name}", Scope(name, VALIDATED))
    further = {"excludes_own": True} if entry.ignore_identical_ids else {}
    return make_dataset(ctx, name, entry, made_of, further)


def find_windows(ctx: Context, name: str, where: str) -> CutDocuments:
    """Return the entry of a dataset of windows; `where` is the key that names it.

    Raises:
        UserError: it is not a dataset of windows, or chooses queries of its own instead of the documents'.
    """
    entry = ctx.datasets.get(name)
    if not isinstance(entry, CutDocuments):
        known = [
            other
            for other, other_entry in ctx.datasets.items()
            if isinstance(other_entry, CutDocuments)
        ]
        problem = f"{where} is {printable(name)}, which is not a dataset of source windows"
        raise UserError(f"{problem}{nearest(name, known)}")
    for key in _OF_QUERIES:
        if getattr(entry, key) is not None:
            problem = f"datasets.{name}.{key} is set, but {where} needs the queries of {entry.of}"
            raise UserError(f"{problem}; leave it out, or set it in datasets.{entry.of}")
    return entry


def _find_entry(ctx: Context, name: str) -> Aggregation:
    return ctx.settings.entries("aggregations", Aggregation)[name]


@plans_run("aggregations")
def plan_aggregation(ctx: Context, name: str, split: str, where: str, data: str) -> Stage:
    """Plan the aggregation of a run over windows, or the scores of the windows of a run's documents."""
    entry = _find_entry(ctx, name)
    at = f"aggregations.{name}"
    documents = _documents_of(ctx, name)
    if documents != data:
        raise UserError(
            f"{where}: {name} searches windows of {documents} ({entry.windows}), not of {data}"
        )

    searched_data = entry.windows if entry.by is None else data
    with ctx.opening("aggregations", name):
        pool = run(ctx, entry.of, split, f"{at}.of", searched_data)
    upstream = {"dataset": dataset(ctx, data), "windows": dataset(ctx, entry.windows), "run": pool}
    params: Json = {"method": entry.method, "split": split}
    if entry.method in METHODS_BY_OPTION["k"]:
        params["k"] = entry.k

    if entry.by is None:
        params["depth"] = run_depth(ctx, split, data)
        if entry.method in METHODS_BY_OPTION["missing"]:
            # A sum over hundreds of lowest scores would mostly measure the length of a document.
            params["missing"] = entry.missing or ("zero" if entry.method == "sum" else "lowest")
        return ctx.stage("aggregate", data, f"{name}.{split}", params, upstream)

    params |= reranking_params(ctx, split, data)
    require_depth(pool, params["depth"], "rerank.depth")
    # Most logits are negative, so that their sum would fall with the number of a document's windows.
    params["scores"] = entry.scores or ("probability" if entry.method == "sum" else "raw")
    upstream |= judges(ctx, [entry.by], f"{at}.by", entry.windows, CROSS_PARTS)
    return ctx.stage("rerank_windows", data, f"{name}.{split}", params, upstream)


def _documents_of(ctx: Context, name: str) -> str:
    """Return the dataset whose windows an aggregation names."""
    windows = _find_entry(ctx, name).windows
    return find_windows(ctx, windows, f"aggregations.{name}.windows").of


@checks_entry("aggregations")
def check_aggregation(ctx: Context, name: str) -> None:
    """Refuse an entry whose keys do not fit together, or that cannot be planned on any split."""
    entry = _find_entry(ctx, name)
    at = f"aggregations.{name}"
    if entry.by is None and entry.scores is not None:
        raise UserError(
            f"{at}.scores is {entry.scores}, but there is no {at}.by: only its scores can be turned"
        )
    if entry.by is not None and entry.missing is not None:
        raise UserError(
            f"{at}.missing is {entry.missing}, but {at}.by scores every window; leave it out"
        )

    data = _documents_of(ctx, name)
    for reason in why_on_no_split(ctx, data, lambda split: run(ctx, name, split, at, data)):
        if not isinstance(reason, Unavailable):
            raise reason


@lists_unused_keys("aggregations")
def list_unused_aggregation_keys(settings: Settings) -> list[str]:
    """Return a line for each key that an entry of `aggregations` sets, but its method does not use."""
    lines = []
    for name, entry in settings.entries("aggregations", Aggregation).items():
        for option, methods in METHODS_BY_OPTION.items():
            is_set = option in entry.model_fields_set and getattr(entry, option) is not None
            if is_set and entry.method not in methods:
                problem = f"has no effect with method {entry.method}; used by {', '.join(methods)}"
                lines.append(f"aggregations.{name}.{option} {problem}")
    return lines


def _find_parade(entry: ModelEntry | None) -> ParadeOptions | None:
    """Return the PARADE options of an entry of `models`; None if it has none."""
    options = getattr(entry, "parade", None)
    assert options is None or isinstance(options, ParadeOptions)
    return options


def find_read_windows(ctx: Context, name: str, data: str, where: str) -> str:
    """Return the dataset of windows that a PARADE model reads; refuse windows of another dataset than `data`."""
    options = _find_parade(ctx.settings.models[name])
    assert options is not None
    windows = find_windows(ctx, options.windows, f"models.{name}.parade.windows")
    if windows.of != data:
        raise UserError(
            f"{where}: {name} reads windows of {windows.of} ({options.windows}), not of {data}"
        )
    return options.windows


def check_parade(ctx: Context, at: str, entry: CrossModel, params: Json) -> None:
    """Refuse options and starts that PARADE does not support, and a PARADE start for a model that is not PARADE."""
    start = ctx.settings.models.get(ctx.model_name(entry.init))
    started = _find_parade(start)
    own = _find_parade(entry)
    if own is None:
        if started is not None:
            raise UserError(f"{at}.init is {entry.init}, which is PARADE; say {at}.parade, too")
        return
    if params["pooling"] not in PARADE_POOLINGS:
        allowed = ", ".join(PARADE_POOLINGS)
        raise UserError(
            f"{at}.pooling is {params['pooling']}, but parade pools each window; allowed: {allowed}"
        )
    if params.get("prompt") or params.get("compares"):
        raise UserError(
            f"{at}.parade reads a query and a window between special tokens; leave prompt and compares out"
        )
    if entry.train.checkpoints:
        raise UserError(
            f"{at}.train.checkpoints: others validate on a part of the passages; leave it out with parade"
        )
    if started is not None and json_of(started) != json_of(own):
        raise UserError(
            f"{at}.parade differs from {entry.init}'s, which it starts from; take over its keys"
        )
