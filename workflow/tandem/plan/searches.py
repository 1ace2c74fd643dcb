"""Plan searches by a dual encoder's vectors: exact ones, or through an entry of `indexes` (`<model>@<name>`)."""

import importlib

from tandem.config.indexes import AnyIndex, Index
from tandem.config.representations import is_single
from tandem.errors import UserError, nearest
from tandem.plan.context import Context, json_of, plans_index, search
from tandem.plan.dataset_stages import corpus_dataset, dataset
from tandem.plan.graph import Stage
from tandem.plan.reported import searched
from tandem.plan.starting_encoders import dual_encoder, tokens_of_dual
from tandem.stages import KINDS, parameter_names
from tandem.stages.base import Json


def plan_encoding(
    ctx: Context, kind: str, system: str, where: str, data: str, split: str | None = None
) -> Stage:
    """Plan the encoding of passages, or of a split's queries, by a dual encoder, trained or not.

    Args:
        kind: the kind of the stage, such as `embeddings`.
        where: the key that names the system.
        split: whose queries; None: the passages.
    """
    model = dual_encoder(ctx, system, where)
    representation = model.params.representation
    if KINDS[kind].vectors == "text" and not is_single(representation):
        raise UserError(
            f"{where}: {system} is of representation {representation.type}; this needs single vectors"
        )

    settings = ctx.settings.encode
    params = json_of(settings)
    of_side = settings.query_dtype if split else settings.dtype
    params["dtype"] = representation.choose_dtype(of_side, settings.query_dtype)
    params["side"] = "queries" if split else "passages"
    params["split"] = split

    if split is None:
        data = corpus_dataset(ctx, data)
    # By the system's name: the stage may have the name of an equal model of another variant.
    tokens = tokens_of_dual(ctx, system, model, data)
    upstream = {"dataset": dataset(ctx, data), "model": model, "tokens": tokens}
    execution = ctx.execution("attention", "compile")
    return ctx.stage(kind, data, f"{model.name}.{split or 'passages'}", params, upstream, execution)


def encode_both_sides(
    ctx: Context, kind: str, system: str, split: str, where: str, data: str
) -> dict[str, Stage]:
    """Plan the inputs of a search: the dataset, and its passages and a split's queries, encoded by a kind of stage."""
    passages = plan_encoding(ctx, kind, system, where, data)
    queries = plan_encoding(ctx, kind, system, where, data, split)
    return {"dataset": dataset(ctx, data), "passages": passages, "queries": queries}


@search("single")
def search_vectors(
    ctx: Context, system: str, split: str, where: str, data: str, name: str | None
) -> Stage:
    """Plan the search of single vectors: an exact one, or one through the named index."""
    if name is not None:
        kind = find_vector_index(ctx, name, f"{where}: {system}@{name}").searched_by
        return search_index(ctx, kind, "embeddings", system, split, where, data, name)
    upstream = encode_both_sides(ctx, "embeddings", system, split, where, data)
    label = f"{dual_encoder(ctx, system, where).name}.{split}"
    execution = ctx.execution("engine", "search_memory")
    return ctx.stage("retrieve", data, label, searched(ctx, split, data), upstream, execution)


def search_index(
    ctx: Context,
    kind: str,
    encoding: str,
    system: str,
    split: str,
    where: str,
    data: str,
    name: str,
) -> Stage:
    """Plan the search through an index of the vectors that another kind of stage, `encoding`, makes.

    If the index's entry has a parameter of the search, the entry's value is used.
    """
    entry = find_vector_index(ctx, name, f"{where}: {system}@{name}")
    upstream = encode_both_sides(ctx, encoding, system, split, where, data)
    known = parameter_names(kind)
    own = {key: value for key, value in json_of(entry).items() if key in known}
    params = searched(ctx, split, data) | own
    index = plan_index(ctx, upstream["passages"], name, data, params)
    upstream["index"] = index
    return ctx.stage(
        kind, data, f"{index.name}.{split}", params, upstream, ctx.execution("index_gpu", "devices")
    )


def find_index(ctx: Context, name: str, where: str, *more: str) -> AnyIndex:
    """Return an entry of `indexes`; `where` is the key that names it, `more` are further names that this key allows."""
    known = ctx.settings.indexes
    if name not in known:
        raise UserError(f"{where}: {name} is not an index{nearest(name, [*known, *more])}")
    return known[name]


def find_vector_index(ctx: Context, name: str, where: str) -> Index:
    """Return an entry of `indexes` for vectors; `where` names the key that refers to it."""
    entry = find_index(ctx, name, where)
    if not isinstance(entry, Index):
        raise UserError(
            f"{where}: {name} searches {entry.searches}, not vectors; name an index of another type"
        )
    importlib.import_module("tandem.extras.plugin_checks").require_index_stages(name, entry)
    return entry


def plan_index(ctx: Context, passages: Stage, name: str, data: str, params: Json) -> Stage:
    """Plan the index of a dual encoder's passages by an entry of `indexes`; `params` are those of the search."""
    entry = find_vector_index(ctx, name, f"indexes.{name}")
    return plans_index[entry.built_by](ctx, passages, name, data, params)
