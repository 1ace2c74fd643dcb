"""The runs of sparse encoders and of uniCOIL: exact, or through Lucene (`<model>@lucene`)."""

from tandem.errors import UserError
from tandem.plan.context import Context, json_of, search
from tandem.plan.datasets import dataset
from tandem.plan.encoders import dual_encoder, encoded
from tandem.plan.graph import Stage
from tandem.plan.runs import searched

INDEX = "lucene"


@search("sparse")
@search("unicoil")
def search_terms(ctx: Context, system: str, split: str, where: str, data: str, index: str | None) -> Stage:
    """The stage that searches weights of terms exactly, or in Lucene's index of them."""
    if index not in (None, INDEX):
        problem = f"{system} gives weights to terms, and {index} is an index of vectors"
        raise UserError(f"{where}: {problem}; allowed: {system} (exact) and {system}@{INDEX}")
    params, name = searched(ctx, split, data), dual_encoder(ctx, system, where).name
    if index is None:
        upstream, how = term_weights(ctx, system, split, where, data), ctx.execution("search_memory")
        return ctx.stage("retrieve_sparse", data, f"{name}.{split}", params, upstream, how)
    upstream = impacts(ctx, system, split, where, data)
    return ctx.stage("search_impacts", data, f"{name}@{INDEX}.{split}", params, upstream)


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
