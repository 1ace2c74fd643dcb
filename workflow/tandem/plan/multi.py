"""How late interaction searches: tokens' vectors of passages and queries, perhaps an index of them, and MaxSim."""

from tandem.errors import UserError
from tandem.plan.context import Context, json_of, search
from tandem.plan.datasets import dataset
from tandem.plan.encoders import dual_encoder, encoded
from tandem.plan.graph import JSON, Stage
from tandem.plan.runs import index, index_entry, searched
from tandem.stages.retrieval import MaxSimParams


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
    """What is searched: the dataset, and tokens' vectors of its passages and of a split's queries."""
    encode: JSON = json_of(ctx.settings.encode) | {"dtype": "fp16"}

    def vectors(label: str, **side: str) -> Stage:
        return encoded(ctx, "token_vectors", system, label, encode | side, where, data)

    passages, queries = vectors("passages", side="passages"), vectors(split, side="queries", split=split)
    return {"dataset": dataset(ctx, data), "passages": passages, "queries": queries}
