"""How texts that are not single vectors are searched: by tokens' vectors, and by weights of terms.

Tokens' vectors meet by MaxSim, of all passages or of those that an index finds. Weights are searched exactly, through
Lucene (`<model>@lucene`), or by an entry of `indexes`.
"""

from tandem.config.indexes import SeismicBuild, SeismicIndex, SeismicSearch, TermIndexEntry
from tandem.errors import UserError
from tandem.plan.context import Context, json_of, search
from tandem.plan.datasets import dataset
from tandem.plan.encoders import dual_encoder, encoded
from tandem.plan.graph import JSON, Stage
from tandem.plan.runs import any_index, index, index_entry, searched
from tandem.stages.retrieval import MaxSimParams

INDEX = "lucene"


def encoded_sides(
    ctx: Context, kind: str, system: str, split: str, where: str, data: str, dtype: str
) -> dict[str, Stage]:
    """What a search reads: the dataset, and stages of a kind that encode its passages and a split's queries."""
    encode: JSON = json_of(ctx.settings.encode) | {"dtype": dtype}
    passages = encoded(ctx, kind, system, "passages", encode | {"side": "passages"}, where, data)
    queries = encoded(ctx, kind, system, split, encode | {"side": "queries", "split": split}, where, data)
    return {"dataset": dataset(ctx, data), "passages": passages, "queries": queries}


@search("multi")
def search_tokens(ctx: Context, system: str, split: str, where: str, data: str, name: str | None) -> Stage:
    """The stage that scores all passages by their tokens, or those that the index of a name finds."""
    if name is None:
        return search_all(ctx, system, split, where, data)
    entry, inputs = index_entry(ctx, name, f"{where}: {system}@{name}"), token_vectors(ctx, system, split, where, data)
    inputs["index"] = built = index(ctx, inputs["passages"], name, data)
    params = searched(ctx, split, data)
    params |= {key: value for key, value in json_of(entry).items() if key in MaxSimParams.model_fields}
    return ctx.stage("maxsim", data, f"{built.name}.{split}", params, inputs, ctx.execution("index_gpu", "devices"))


@search("coil")
def search_same_tokens(ctx: Context, system: str, split: str, where: str, data: str, name: str | None) -> Stage:
    """The stage that scores all passages by the tokens that they share with a query."""
    if name is not None:
        hint = f"leave out @{name}"
        raise UserError(
            f"{where}: {system}@{name}: an index of vectors does not know which tokens are the same; {hint}"
        )
    return search_all(ctx, system, split, where, data, same_token=True)


@search("poly")
def search_nothing(ctx: Context, system: str, split: str, where: str, data: str, name: str | None) -> Stage:
    """Refuse to search by what has another vector of a query for each passage."""
    hint = f"re-rank a run by it, as bm25+{system}"
    raise UserError(f"{where}: {system} is a poly-encoder, which scores pairs and has no vectors to search; {hint}")


def search_all(ctx: Context, system: str, split: str, where: str, data: str, **params: bool) -> Stage:
    """The stage that scores all passages."""
    label = f"{dual_encoder(ctx, system, where).name}.{split}"
    inputs = token_vectors(ctx, system, split, where, data)
    return ctx.stage("maxsim", data, label, searched(ctx, split, data) | params, inputs)


def token_vectors(ctx: Context, system: str, split: str, where: str, data: str) -> dict[str, Stage]:
    """`encoded_sides` as vectors of tokens, which are stored in fp16."""
    return encoded_sides(ctx, "token_vectors", system, split, where, data, "fp16")


@search("sparse")
@search("unicoil")
@search("uhd")
@search("spade")
def search_terms(ctx: Context, system: str, split: str, where: str, data: str, name: str | None) -> Stage:
    """The stage that searches weights of terms: exactly, in Lucene, or as an entry of `indexes` says."""
    params, label = searched(ctx, split, data), dual_encoder(ctx, system, where).name
    if name == INDEX:
        upstream = impacts(ctx, system, split, where, data)
        return ctx.stage("search_impacts", data, f"{label}@{INDEX}.{split}", params, upstream)
    entry = _index(ctx, system, name, where) if name else None
    upstream, how = term_weights(ctx, system, split, where, data), ctx.execution("search_memory")
    if isinstance(entry, SeismicIndex):
        upstream["index"] = seismic(ctx, upstream, f"{label}@{name}", entry, data)
        params |= json_of(entry, *SeismicSearch.model_fields)
        return ctx.stage("search_seismic", data, f"{label}@{name}.{split}", params, upstream)
    if entry is not None:
        params["index"], label = json_of(entry), f"{label}@{name}"
    return ctx.stage("retrieve_sparse", data, f"{label}.{split}", params, upstream, how)


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
    """`encoded_sides` as weights of terms; int8 is of vectors, whose numbers share a scale."""
    return encoded_sides(ctx, "term_weights", system, split, where, data, ctx.settings.encode.query_dtype)
