"""Plan the stage that builds one of FAISS's indexes, from an entry of `indexes`."""

from contextlib import suppress

from tandem.contrib.indexes.factory_strings import describe_factory
from tandem.contrib.indexes.index_types import SEARCH_KEYS, check_index, has_parameter
from tandem.contrib.indexes.options import (
    PASSAGES_OF_A_GRAPH,
    FactoryIndex,
    FaissIndex,
    IndexParams,
)
from tandem.errors import UserError
from tandem.extras.searched_indexes import MOST_ON_GPU
from tandem.plan.context import Context, checks_entry, json_of, plans_index
from tandem.plan.graph import Stage
from tandem.plan.sizes import dimension
from tandem.stages.base import Json


def _index_params(entry: FaissIndex, seed: int) -> IndexParams:
    """Return the parameters of an index from an entry, which also has keys of how it is searched.

    Args:
        seed: the configuration's seed, for an entry without its own.
    """
    params: Json = {key: value for key, value in json_of(entry).items() if key not in SEARCH_KEYS}
    if "seed" in params and params["seed"] is None:
        params["seed"] = seed
    if isinstance(entry, FactoryIndex) and "part" not in entry.model_fields_set:
        with suppress(ValueError):  # an unknown one is refused elsewhere, by its key
            if describe_factory(entry.factory).is_graph:
                params["part"] = PASSAGES_OF_A_GRAPH
    return IndexParams.model_validate(params)


@checks_entry("indexes")
def check_index_entry(ctx: Context, name: str) -> None:
    """Refuse one of FAISS's indexes whose keys do not fit together."""
    entry = ctx.settings.indexes[name]
    if isinstance(entry, FaissIndex):
        check_index(_index_params(entry, ctx.settings.seed), f"indexes.{name}")


@plans_index("index")
def plan_faiss_index(ctx: Context, passages: Stage, name: str, data: str, search: Json) -> Stage:
    """Plan the index of a dual encoder's passages that an entry describes."""
    at = f"indexes.{name}"
    entry = ctx.settings.indexes[name]
    assert isinstance(entry, FaissIndex)
    params = _index_params(entry, ctx.settings.seed)
    model = passages.upstream["model"]
    of_tokens = passages.declared.vectors != "text"
    rows = (ctx.dataset_entry(data).counts or {}).get("passages")
    if entry.has_gpu_form and ctx.settings.execution.index_gpu != "none":
        _check_for_gpus(at, search, of_tokens, rows)
    # the number and the size of tokens' vectors are known only later
    if not of_tokens:
        is_rotated = has_parameter(params, "opq") and params.opq
        is_sized = params.m or is_rotated or params.factory is not None
        size = dimension(ctx, model.values, passages.upstream["tokens"]) if is_sized else None
        check_index(params, at, rows, size)
    execution = ctx.execution("index_gpu", "devices")
    return ctx.stage(
        "index", data, f"{model.name}@{name}", params, {"passages": passages}, execution
    )


def _check_for_gpus(at: str, search: Json, of_tokens: bool, passages: int | None) -> None:
    """Refuse a search for more neighbours, or in more lists, than FAISS supports on a GPU.

    Args:
        at: the path of the index's entry.
        search: parameters of the search.
        of_tokens: whether the vectors are those of tokens, and neighbours are searched for near each of a query's.
        passages: the number of passages, if the dataset's entry has it.
    """
    depth = min(search["depth"], passages or search["depth"])
    factor = search["rescore_factor"] if search["rescore"] or of_tokens else 1
    near = depth * factor
    if passages and not of_tokens:
        near = min(near, passages)
    if near > MOST_ON_GPU:
        unit = "tokens near each of a query's" if of_tokens else "passages of a query"
        needed = f"{near:,} {unit} (depth {depth:,} times {factor}) are needed"
        hint = "lower rescore_factor or the depth, or set execution.index_gpu to none"
        raise UserError(f"{at}: {needed}, but a GPU finds at most {MOST_ON_GPU:,}; {hint}")
    lists = search.get("nprobe") or 0
    if lists > MOST_ON_GPU:
        most = f"a GPU searches at most {MOST_ON_GPU:,} lists"
        raise UserError(
            f"{at}.nprobe is {lists:,}, but {most}; lower it, or set execution.index_gpu to none"
        )
