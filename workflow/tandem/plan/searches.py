"""The stages that search by a dual encoder: by single vectors, by vectors of tokens, or by weights of terms.

Single vectors are searched exactly, or through an entry of `indexes` (`<model>@<name>`). Tokens' vectors meet by
MaxSim, of all passages or of those that an index finds. Weights are searched exactly, through Lucene
(`<model>@lucene`), or by an entry of `indexes`.
"""

from tandem.config.indexes import Index, SeismicBuild, SeismicIndex, SeismicSearch, TermIndex, TermIndexEntry
from tandem.config.references import Name
from tandem.config.representations import is_single
from tandem.errors import UserError, nearest
from tandem.plan.context import Context, checks_entry, json_of, plans_reference, search
from tandem.plan.datasets import dataset
from tandem.plan.encoders import dual_encoder, tokens_of_dual
from tandem.plan.graph import Stage
from tandem.plan.references import Scope
from tandem.plan.reported import searched
from tandem.plan.sizes import dimension
from tandem.retrieval.index_types import SEARCH_KEYS, check_index
from tandem.stages import KINDS, parameter_names
from tandem.stages.retrieval import IndexParams

LUCENE = "lucene"


def encoded(ctx: Context, kind: str, system: str, where: str, data: str, split: str | None = None) -> Stage:
    """The stage of a kind that encodes passages, or a split's queries, by a dual encoder, trained or not."""
    model, encode = dual_encoder(ctx, system, where), ctx.settings.encode
    representation, vectors = model.params.representation, KINDS[kind].vectors
    if vectors == "text" and not is_single(representation):
        raise UserError(f"{where}: {system} is of representation {representation.type}; this needs single vectors")
    # Tokens' vectors are stored in fp16; int8 is of single vectors, whose numbers share a scale.
    dtypes = {"text": encode.query_dtype if split else encode.dtype, "token": "fp16", "term": encode.query_dtype}
    params = json_of(encode) | {"dtype": dtypes[vectors]}
    params |= {"side": "queries" if split else "passages", "split": split}
    # By the system's name: an equal model of another variant may have lent the stage its own.
    read = tokens_of_dual(ctx, system, model, data)
    upstream = {"dataset": dataset(ctx, data), "model": model, "tokens": read}
    execution = ctx.execution("attention", "compile")
    return ctx.stage(kind, data, f"{model.name}.{split or 'passages'}", params, upstream, execution)


@plans_reference("topics")
def plan_topics(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the clusters of the training queries, by the dual encoder that a key of `topics` names."""
    queries = encoded(ctx, "embeddings", name.names[0], name.path, scope.dataset, "train")
    params = {**json_of(name.section), "seed": scope.seed}
    inputs = {"dataset": dataset(ctx, scope.dataset), "queries": queries}
    return {"topics": ctx.stage("topics", scope.dataset, name.names[0], params, inputs)}


def both_sides(ctx: Context, kind: str, system: str, split: str, where: str, data: str) -> dict[str, Stage]:
    """What a search reads: the dataset, and stages of a kind that encode its passages and a split's queries."""
    passages, queries = (encoded(ctx, kind, system, where, data, side) for side in (None, split))
    return {"dataset": dataset(ctx, data), "passages": passages, "queries": queries}


@search("single")
def search_vectors(ctx: Context, system: str, split: str, where: str, data: str, name: str | None) -> Stage:
    """The stage that searches single vectors exactly, or through the index of a name."""
    if name is not None:
        return _by_index(ctx, "ann", "embeddings", system, split, where, data, name)
    upstream, how = both_sides(ctx, "embeddings", system, split, where, data), ctx.execution("engine", "search_memory")
    label = f"{dual_encoder(ctx, system, where).name}.{split}"
    return ctx.stage("retrieve", data, label, searched(ctx, split, data), upstream, how)


@search("multi")
def search_tokens(
    ctx: Context, system: str, split: str, where: str, data: str, name: str | None, **params: bool
) -> Stage:
    """The stage that scores all passages by their tokens, or those that the index of a name finds."""
    if name is not None:
        return _by_index(ctx, "maxsim", "token_vectors", system, split, where, data, name)
    label = f"{dual_encoder(ctx, system, where).name}.{split}"
    upstream = both_sides(ctx, "token_vectors", system, split, where, data)
    return ctx.stage("maxsim", data, label, searched(ctx, split, data) | params, upstream)


def _by_index(
    ctx: Context, kind: str, encoding: str, system: str, split: str, where: str, data: str, name: str
) -> Stage:
    """Return the stage of a kind that searches through an index of vectors, which another kind, `encoding`, makes.

    Parameters of the search that the index's entry has are the entry's.
    """
    entry = index_entry(ctx, name, f"{where}: {system}@{name}")
    upstream = both_sides(ctx, encoding, system, split, where, data)
    upstream["index"] = built = index(ctx, upstream["passages"], name, data)
    own = {key: value for key, value in json_of(entry).items() if key in parameter_names(kind)}
    params = searched(ctx, split, data) | own
    return ctx.stage(kind, data, f"{built.name}.{split}", params, upstream, ctx.execution("index_gpu", "devices"))


@search("coil")
def search_same_tokens(ctx: Context, system: str, split: str, where: str, data: str, name: str | None) -> Stage:
    """The stage that scores all passages by the tokens that they share with a query."""
    if name is not None:
        why = "an index of vectors does not know which tokens are the same"
        raise UserError(f"{where}: {system}@{name}: {why}; leave out @{name}")
    return search_tokens(ctx, system, split, where, data, None, same_token=True)


@search("poly")
def search_nothing(ctx: Context, system: str, split: str, where: str, data: str, name: str | None) -> Stage:
    """Refuse a poly-encoder, which has another vector of the query for each passage."""
    hint = f"re-rank a run by it, as bm25+{system}"
    raise UserError(f"{where}: {system} is a poly-encoder, which scores pairs and has no vectors to search; {hint}")


@search("sparse")
@search("unicoil")
@search("uhd")
@search("spade")
def search_terms(ctx: Context, system: str, split: str, where: str, data: str, name: str | None) -> Stage:
    """The stage that searches weights of terms: exactly, in Lucene, or as an entry of `indexes` says."""
    params, label = searched(ctx, split, data), dual_encoder(ctx, system, where).name
    if name == LUCENE:
        upstream = impacts(ctx, system, split, where, data)
        return ctx.stage("search_impacts", data, f"{label}@{LUCENE}.{split}", params, upstream)
    entry = _term_index(ctx, system, name, where) if name else None
    upstream = both_sides(ctx, "term_weights", system, split, where, data)
    if isinstance(entry, SeismicIndex):
        upstream["index"] = seismic(ctx, upstream, f"{label}@{name}", entry, data)
        params |= json_of(entry, *SeismicSearch.model_fields)
        return ctx.stage("search_seismic", data, f"{label}@{name}.{split}", params, upstream)
    if entry is not None:
        params["index"], label = json_of(entry), f"{label}@{name}"
    how = ctx.execution("search_memory")
    return ctx.stage("retrieve_sparse", data, f"{label}.{split}", params, upstream, how)


def _term_index(ctx: Context, system: str, name: str, where: str) -> TermIndexEntry:
    """The entry of `indexes` for weights of terms."""
    entry = any_index(ctx, name, f"{where}: {system}@{name}", LUCENE)
    if not isinstance(entry, TermIndexEntry):
        own = [LUCENE, *(other for other, known in ctx.settings.indexes.items() if isinstance(known, TermIndexEntry))]
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
    upstream = both_sides(ctx, "term_weights", system, split, where, data)
    name = dual_encoder(ctx, system, where).name
    inputs = {role: upstream[role] for role in ("dataset", "passages")}
    return upstream | {"index": ctx.stage("impacts", data, f"{name}@{LUCENE}", {}, inputs)}


def any_index(ctx: Context, name: str, where: str, *more: str) -> Index | TermIndex:
    """An entry of `indexes`; `where` is the key that names it, and `more` are names that this key allows besides."""
    known = ctx.settings.indexes
    if name not in known:
        raise UserError(f"{where}: {name} is no index{nearest(name, [*known, *more])}")
    return known[name]


def index_entry(ctx: Context, name: str, where: str) -> Index:
    """An entry of `indexes` for vectors; `where` names the key that refers to it."""
    entry = any_index(ctx, name, where)
    if not isinstance(entry, Index):
        raise UserError(f"{where}: {name} searches weights of terms, not vectors; name an index of another type")
    return entry


def index_params(entry: Index, seed: int) -> IndexParams:
    """The parameters of an index, of an entry that also says how it is searched; `seed` is the configuration's."""
    own = {key: value for key, value in json_of(entry).items() if key not in SEARCH_KEYS}
    return IndexParams.model_validate(own | ({"seed": seed} if own.get("seed", 0) is None else {}))


@checks_entry("indexes")
def check_index_entry(ctx: Context, name: str) -> None:
    """Refuse an index of vectors whose keys do not go together."""
    entry = ctx.settings.indexes[name]
    if isinstance(entry, Index):
        check_index(index_params(entry, ctx.settings.seed), f"indexes.{name}")


def index(ctx: Context, passages: Stage, name: str, data: str) -> Stage:
    """The stage that builds an index of a dual encoder's passages."""
    params = index_params(index_entry(ctx, name, f"indexes.{name}"), ctx.settings.seed)
    if passages.declared.vectors == "text":  # of tokens' vectors, how many there are and their size is known later
        rows = (ctx.dataset_entry(data).counts or {}).get("passages")
        is_sized = params.m or params.factory is not None
        size = dimension(ctx, passages.upstream["model"].values, passages.upstream["tokens"]) if is_sized else None
        check_index(params, f"indexes.{name}", rows, size)
    label = f"{passages.upstream['model'].name}@{name}"
    return ctx.stage("index", data, label, params, {"passages": passages}, ctx.execution("index_gpu", "devices"))
