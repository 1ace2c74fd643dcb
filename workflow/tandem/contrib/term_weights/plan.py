"""Searches by weights of terms: exact, in Lucene (`<model>@lucene`), or by an entry of `indexes`."""

from tandem.contrib.term_weights.options import WinnersTakeAll
from tandem.contrib.term_weights.term_options import (
    ExactTermIndex,
    SeismicBuild,
    SeismicIndex,
    SeismicSearch,
    TermIndex,
)
from tandem.errors import UserError
from tandem.extras.searched_indexes import plans_comparison
from tandem.extras.tradeoffs_options import Tradeoffs
from tandem.plan.context import Context, checks_section, json_of, search
from tandem.plan.graph import Stage
from tandem.plan.reported import searched
from tandem.plan.searches import encode_both_sides, find_index
from tandem.plan.sizes import known_shape
from tandem.plan.starting_encoders import dual_encoder, encoder

LUCENE = "lucene"


@checks_section("models.representation.layers")
def check_layers(ctx: Context) -> None:
    """Refuse a layer of UHD-BERT that the encoder lacks, if the encoder's sizes are known at planning."""
    for name, entry in ctx.settings.models.items():
        chosen = getattr(entry, "representation", None)
        if not isinstance(chosen, WinnersTakeAll) or not chosen.layers:
            continue
        shape = known_shape(ctx, encoder(ctx, ctx.root(name, "dual")))
        last = max(chosen.layers)
        if shape and last > shape.layers:
            key = f"models.{name}.representation.layers"
            raise UserError(
                f"{key} names layer {last}; allowed: 1 to {shape.layers}, the encoder's"
            )


@search("sparse")
@search("sparterm")
@search("unicoil")
@search("uhd")
@search("spade")
def search_terms(
    ctx: Context, system: str, split: str, where: str, data: str, name: str | None
) -> Stage:
    """Plan the search of weights of terms: exact, in Lucene, or by an entry of `indexes`."""
    params = searched(ctx, split, data)
    label = dual_encoder(ctx, system, where).name
    if name is not None:
        label = f"{label}@{name}"
    if name == LUCENE:
        upstream = plan_impacts(ctx, system, split, where, data)
        return ctx.stage("search_impacts", data, f"{label}.{split}", params, upstream)

    entry = _find_term_index(ctx, system, name, where) if name else None
    upstream = encode_both_sides(ctx, "term_weights", system, split, where, data)
    if isinstance(entry, SeismicIndex):
        upstream["index"] = plan_seismic(ctx, upstream, label, entry, data)
        params |= json_of(entry, *SeismicSearch.model_fields)
        return ctx.stage("search_seismic", data, f"{label}.{split}", params, upstream)
    if entry is not None:
        params["index"] = json_of(entry)
    return ctx.stage(
        "retrieve_sparse",
        data,
        f"{label}.{split}",
        params,
        upstream,
        ctx.execution("search_memory"),
    )


def _find_term_index(ctx: Context, system: str, name: str, where: str) -> TermIndex:
    """Return the entry of `indexes` for weights of terms; refuse any other."""
    entry = find_index(ctx, name, f"{where}: {system}@{name}", LUCENE)
    if not isinstance(entry, TermIndex):
        fitting = _list_indexes(ctx, TermIndex)
        allowed = ", ".join(
            [f"{system} (exact)", *(f"{system}@{other}" for other in (LUCENE, *fitting))]
        )
        problem = f"{system} gives weights to terms, and {name} is an index of vectors"
        raise UserError(f"{where}: {problem}; allowed: {allowed}")
    return entry


def _list_indexes(ctx: Context, kind: type[TermIndex]) -> list[str]:
    """Return the names of the entries of `indexes` that are of a kind."""
    return [name for name, entry in ctx.settings.indexes.items() if isinstance(entry, kind)]


def plan_seismic(
    ctx: Context, upstream: dict[str, Stage], label: str, entry: SeismicIndex, data: str
) -> Stage:
    """Plan Seismic's index of the passages' weights, which `upstream` contains."""
    inputs = {role: upstream[role] for role in ("dataset", "passages")}
    return ctx.stage("seismic", data, label, json_of(entry, *SeismicBuild.model_fields), inputs)


def plan_impacts(ctx: Context, system: str, split: str, where: str, data: str) -> dict[str, Stage]:
    """Plan the inputs of a search in Lucene: the dataset, weights of both sides, and the index of passages' weights."""
    upstream = encode_both_sides(ctx, "term_weights", system, split, where, data)
    name = dual_encoder(ctx, system, where).name
    inputs = {role: upstream[role] for role in ("dataset", "passages")}
    return upstream | {"index": ctx.stage("impacts", data, f"{name}@{LUCENE}", {}, inputs)}


@plans_comparison("term_weights")
def compare_term_searches(ctx: Context, options: Tradeoffs, model: str, split: str) -> Stage:
    """Plan the stage that measures indexes of weights of terms against one another.

    Indexes of vectors among the default ones are skipped.

    Raises:
        UserError: `tradeoffs` itself names an index of vectors, or sets a parameter of their searches.
    """
    data = ctx.settings.dataset
    for key in sorted(options.sweep.model_fields_set):
        problem = (
            f"is set, but {model} gives weights to terms, whose searches have no such parameter"
        )
        raise UserError(f"tradeoffs.sweep.{key} {problem}; leave it out")
    # without the options of indexes of vectors
    params = json_of(options, "queries", "k", "repeats") | {"split": split}
    upstream = plan_impacts(ctx, model, split, "tradeoffs.model", data)
    params["seismic"] = []
    for name in options.indexes:
        built = find_index(ctx, name, "tradeoffs.indexes")
        if isinstance(built, ExactTermIndex):
            raise UserError(
                f"tradeoffs.indexes: {name} ranks by other weights than all others; leave it out"
            )
        if not isinstance(built, TermIndex) and "indexes" in options.model_fields_set:
            problem = f"{model} gives weights to terms, and {name} is an index of vectors"
            allowed = ", ".join(_list_indexes(ctx, SeismicIndex)) or "none"
            raise UserError(f"tradeoffs.indexes: {problem}; allowed: {allowed}")
        if isinstance(built, SeismicIndex):
            number = len(params["seismic"])
            params["seismic"].append({"name": name, **json_of(built, *SeismicSearch.model_fields)})
            upstream[f"seismic.{number}"] = plan_seismic(
                ctx, upstream, f"{model}@{name}", built, data
            )
    return ctx.stage("term_tradeoffs", data, f"{model}.{split}", params, upstream)
