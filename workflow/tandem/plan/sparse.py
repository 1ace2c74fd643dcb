"""The runs of models that weigh terms: exact, through Lucene (`<model>@lucene`), or by an entry of `indexes`."""

from tandem.config.indexes import SeismicBuild, SeismicIndex, SeismicSearch, TermIndexEntry
from tandem.errors import UserError
from tandem.plan.context import Context, json_of, search
from tandem.plan.datasets import dataset
from tandem.plan.encoders import dual_encoder, encoded
from tandem.plan.graph import Stage
from tandem.plan.runs import any_index, searched

INDEX = "lucene"


@search("sparse")
@search("unicoil")
@search("uhd")
@search("spade")
def search_terms(ctx: Context, system: str, split: str, where: str, data: str, index: str | None) -> Stage:
    """The stage that searches weights of terms: exactly, in Lucene, or as an entry of `indexes` says."""
    params, name = searched(ctx, split, data), dual_encoder(ctx, system, where).name
    if index == INDEX:
        upstream = impacts(ctx, system, split, where, data)
        return ctx.stage("search_impacts", data, f"{name}@{INDEX}.{split}", params, upstream)
    entry = _index(ctx, system, index, where) if index else None
    upstream, how = term_weights(ctx, system, split, where, data), ctx.execution("search_memory")
    if isinstance(entry, SeismicIndex):
        upstream["index"] = seismic(ctx, upstream, f"{name}@{index}", entry, data)
        params |= json_of(entry, *SeismicSearch.model_fields)
        return ctx.stage("search_seismic", data, f"{name}@{index}.{split}", params, upstream)
    if entry is not None:
        params["index"], name = json_of(entry), f"{name}@{index}"
    return ctx.stage("retrieve_sparse", data, f"{name}.{split}", params, upstream, how)


def _index(ctx: Context, system: str, name: str, where: str) -> TermIndexEntry:
    """The entry of `indexes` for weights of terms."""
    entry = any_index(ctx, name, f"{where}: {system}@{name}", INDEX)
    if not isinstance(entry, TermIndexEntry):
        own = [INDEX, *(other for other, known in ctx.settings.indexes.items() if isinstance(known, TermIndexEntry))]
        allowed = ", ".join([f"{system} (exact)", *(f"{system}@{other}" for other in own)])
        problem = f"{system} gives weights to terms, and {name} is an index of vectors"
        raise UserError(f"{where}: {problem}; allowed: {allowed}")
    return entry


def seismic(ctx: Context, upstream: dict[str, Stage], label: str, entry: SeismicIndex, data: str) -> Stage:
    """Seismic's index of the weights of passages, which are among `upstream`."""
    inputs = {role: upstream[role] for role in ("dataset", "passages")}
    return ctx.stage("seismic", data, label, json_of(entry, *SeismicBuild.model_fields), inputs)


def impacts(ctx: Context, system: str, split: str, where: str, data: str) -> dict[str, Stage]:
    """What a search in Lucene reads: the dataset, weights of its passages and of a split's queries, and the index."""
    upstream, name = term_weights(ctx, system, split, where, data), dual_encoder(ctx, system, where).name
    inputs = {role: upstream[role] for role in ("dataset", "passages")}
    return upstream | {"index": ctx.stage("impacts", data, f"{name}@{INDEX}", {}, inputs)}


def term_weights(ctx: Context, system: str, split: str, where: str, data: str) -> dict[str, Stage]:
    """What an exact search reads: the dataset, and weights of its passages and of a split's queries."""
    # int8 is of vectors, whose numbers share a scale
    encode = json_of(ctx.settings.encode) | {"dtype": ctx.settings.encode.query_dtype}

    def weights(label: str, **side: str) -> Stage:
        return encoded(ctx, "term_weights", system, label, encode | side, where, data)

    passages, queries = weights("passages", side="passages"), weights(split, side="queries", split=split)
    return {"dataset": dataset(ctx, data), "passages": passages, "queries": queries}
