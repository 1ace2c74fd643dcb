"""How late interaction searches: tokens' vectors of passages and queries, perhaps an index of them, and MaxSim."""

from tandem.plan.context import Context, json_of, search
from tandem.plan.datasets import dataset
from tandem.plan.encoders import dual_encoder, encoded
from tandem.plan.graph import JSON, Stage
from tandem.plan.runs import index, index_entry, searched
from tandem.stages.retrieval import MaxSimParams


@search("multi")
def search_tokens(ctx: Context, system: str, split: str, where: str, data: str, name: str | None) -> Stage:
    """The stage that scores all passages by their tokens, or those that the index of a name finds."""
    entry = None if name is None else index_entry(ctx, name, f"{where}: {system}@{name}")
    encode: JSON = json_of(ctx.settings.encode) | {"dtype": "fp16"}

    def vectors(label: str, **side: str) -> Stage:
        return encoded(ctx, "token_vectors", system, label, encode | side, where, data)

    passages, queries = vectors("passages", side="passages"), vectors(split, side="queries", split=split)
    inputs = {"dataset": dataset(ctx, data), "passages": passages, "queries": queries}
    params = searched(ctx, split, data)
    if name is None or entry is None:
        return ctx.stage("maxsim", data, f"{dual_encoder(ctx, system, where).name}.{split}", params, inputs)
    inputs["index"] = built = index(ctx, passages, name, data)
    params |= {key: value for key, value in json_of(entry).items() if key in MaxSimParams.model_fields}
    return ctx.stage("maxsim", data, f"{built.name}.{split}", params, inputs, ctx.execution("index_gpu", "devices"))
