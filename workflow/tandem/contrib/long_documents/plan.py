"""Runs over windows of documents, made into runs over the documents (`aggregations`)."""

from tandem.config.references import CROSS_PARTS
from tandem.config.settings import Settings
from tandem.contrib.long_documents.options import Aggregation
from tandem.errors import Unavailable, UserError
from tandem.plan.context import Context, checks_entry, lists_unused_keys, plans_run, require_depth
from tandem.plan.dataset_stages import dataset, find_windows
from tandem.plan.graph import Stage
from tandem.plan.reported import run_depth
from tandem.plan.run_expressions import reranking_params, run, why_on_no_split
from tandem.plan.starting_encoders import judges
from tandem.stages.base import Json

# Option of `aggregations` → methods that it means something to.
METHODS_BY_OPTION = {"k": ("kmax",), "missing": ("sum", "kmax")}


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
            # A sum over hundreds of lowest scores would be about the length of a document.
            params["missing"] = entry.missing or ("zero" if entry.method == "sum" else "lowest")
        return ctx.stage("aggregate", data, f"{name}.{split}", params, upstream)

    params |= reranking_params(ctx, split, data)
    require_depth(pool, params["depth"], "rerank.depth")
    # Most logits are negative: their sum would be the lower the more windows a document has.
    params["scores"] = entry.scores or ("probability" if entry.method == "sum" else "raw")
    upstream |= judges(ctx, [entry.by], f"{at}.by", entry.windows, CROSS_PARTS)
    return ctx.stage("rerank_windows", data, f"{name}.{split}", params, upstream)


def _documents_of(ctx: Context, name: str) -> str:
    """Return the dataset whose windows an aggregation names."""
    windows = _find_entry(ctx, name).windows
    return find_windows(ctx, windows, f"aggregations.{name}.windows").of


@checks_entry("aggregations")
def check_aggregation(ctx: Context, name: str) -> None:
    """Refuse an entry whose keys do not go together, or that can be planned on no split."""
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
    """Return a line for each key that an entry of `aggregations` sets and its method does not look at."""
    lines = []
    for name, entry in settings.entries("aggregations", Aggregation).items():
        for option, methods in METHODS_BY_OPTION.items():
            is_set = option in entry.model_fields_set and getattr(entry, option) is not None
            if is_set and entry.method not in methods:
                problem = f"has no effect with method {entry.method}; used by {', '.join(methods)}"
                lines.append(f"aggregations.{name}.{option} {problem}")
    return lines
