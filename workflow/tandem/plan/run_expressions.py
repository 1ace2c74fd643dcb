"""Plan the stages that write the run of an expression.

`bm25`; `bm25.<analyzer>` (the same with another analyzer); `given` (the dataset's own training lists); an entry of a
block whose entries are runs, such as `sparse`, `runs` or `fusions`; a dual encoder, searched exactly, or
`<dual encoder>@<name of indexes:>`; `encoder`, a name of `encoders:`, a folder or org/name on the hub, which are dual
encoders without training; `<first stage>+<cross-encoder>`, where an entry of `ensembles`, `rerankers`,
`comparisons`, `llm_rerankers` or `scorers` may take the cross-encoder's place.

`@plans_run` and `@plans_reranking` register how the entries of a block become stages, next to the other code for such
entries.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tandem.config.references import Name
from tandem.errors import UserError
from tandem.plan import lexical
from tandem.plan.context import (
    Context,
    json_of,
    plans_reference,
    plans_reranking,
    plans_run,
    require_depth,
    search,
)
from tandem.plan.dataset_stages import dataset, require_split
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, number_roles
from tandem.plan.reported import find_depth_key, run_depth, searched
from tandem.plan.starting_encoders import dual_encoder
from tandem.stages.base import Json


def run(
    ctx: Context,
    system: str,
    split: str,
    where: str,
    data: str,
    also: Iterable[str] = (),
) -> Stage:
    """Return the stage that writes a system's run on a split of a dataset.

    `where` names the key that refers to it, or to one of `also`.
    """
    require_split(ctx, data, split, f"{where}: searches")
    known = ("run", system, split, data)
    if known not in ctx.memo:
        ctx.memo[known] = _plan_run(ctx, system, split, where, data, also)
    return ctx.memo[known]


def _plan_run(
    ctx: Context, system: str, split: str, where: str, data: str, also: Iterable[str]
) -> Stage:
    first, plus, judge = system.rpartition("+")
    if plus:
        params = reranking_params(ctx, split, data)
        pool = run(ctx, first, split, where, data)
        return rerank(ctx, Reranked(system, judge, pool, split, where, data, params))
    if block := ctx.block_of(system, plans_run):
        return plans_run[block](ctx, system, split, where, data)
    if "@" not in system and ctx.is_sparse(system):
        return lexical.plan_bm25(ctx, system, split, where, data)
    if system == "given":
        inputs = {"dataset": dataset(ctx, data)}
        return ctx.stage("given", data, f"{system}.{split}", searched(ctx, split, data), inputs)

    encoder, at, index = system.partition("@")
    known = () if at else (*ctx.named_runs(), *also)
    representation = dual_encoder(ctx, encoder, where, known).params.representation.type
    return search[representation](ctx, encoder, split, where, data, index if at else None)


@dataclass(frozen=True)
class Reranked:
    """Describe a run whose first passages are re-ranked.

    Attributes:
        system: the whole expression, `bm25+ce_deneg`.
        judge: the name of what re-ranks.
        pool: the stage of the run.
        where: the key that refers to it.
        params: those of re-ranking, `depth` among them.
    """

    system: str
    judge: str
    pool: Stage
    split: str
    where: str
    data: str
    params: Json

    @property
    def name(self) -> str:
        """The name of the stage."""
        return f"{self.system}.{self.split}"


def rerank(ctx: Context, reranked: Reranked) -> Stage:
    """Return the stage that re-ranks a run."""
    require_depth(reranked.pool, reranked.params["depth"], "rerank.depth")
    block = ctx.block_of(reranked.judge, plans_reranking) or "rerankers"
    return plans_reranking[block](ctx, reranked)


def reranking_params(
    ctx: Context, split: str, data: str, where: str = "rerank.depth", depth: int | None = None
) -> Json:
    """Return how cross-encoders re-rank a run, down to `rerank.depth` or to the depth that the key `where` names.

    Raises:
        UserError: runs on the split are not that deep.
    """
    chosen = depth or ctx.settings.rerank.depth
    deepest = run_depth(ctx, split, data)
    if chosen > deepest:
        key = find_depth_key(ctx, split, data)
        raise UserError(
            f"{where} is {chosen}, but runs on {split} are {deepest} deep; raise depth.{key}"
        )
    return json_of(ctx.settings.rerank) | {"depth": chosen}


@plans_reference("run")
def plan_named_runs(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the run, or each of the runs, that a key names."""
    return number_roles(
        name, [run(ctx, system, scope.split, name.path, scope.dataset) for system in name.names]
    )
