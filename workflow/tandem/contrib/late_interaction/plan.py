"""Plan the stages that search by vectors of tokens: MaxSim over all passages, or over those that an index finds."""

from tandem.errors import UserError
from tandem.plan.context import Context, search
from tandem.plan.graph import Stage
from tandem.plan.reported import searched
from tandem.plan.searches import encode_both_sides, search_index
from tandem.plan.starting_encoders import dual_encoder


@search("multi")
def search_tokens(
    ctx: Context, system: str, split: str, where: str, data: str, name: str | None, **params: bool
) -> Stage:
    """Plan the scores of all passages by their tokens, or of those that the index `name` finds."""
    if name is not None:
        return search_index(ctx, "maxsim", "token_vectors", system, split, where, data, name)
    label = f"{dual_encoder(ctx, system, where).name}.{split}"
    upstream = encode_both_sides(ctx, "token_vectors", system, split, where, data)
    return ctx.stage("maxsim", data, label, searched(ctx, split, data) | params, upstream)


@search("coil")
def search_same_tokens(
    ctx: Context, system: str, split: str, where: str, data: str, name: str | None
) -> Stage:
    """Plan the scores of all passages by the tokens that they share with a query; refuse an index."""
    if name is not None:
        why = "an index of vectors does not know which tokens are the same"
        raise UserError(f"{where}: {system}@{name}: {why}; leave out @{name}")
    return search_tokens(ctx, system, split, where, data, None, same_token=True)


@search("poly")
def search_nothing(
    ctx: Context, system: str, split: str, where: str, data: str, name: str | None
) -> Stage:
    """Refuse to search by a poly-encoder, whose query vector differs from passage to passage."""
    hint = f"re-rank a run by it, as bm25+{system}"
    raise UserError(
        f"{where}: {system} is a poly-encoder, which scores pairs and has no vectors to search; {hint}"
    )
