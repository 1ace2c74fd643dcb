"""Runs and their scores: which stages write and measure the run that an expression names.

`bm25`; `bm25.<analyzer>` (the same with another analyzer); `given` (the dataset's own training lists); a name of
`sparse:` (a variant of bm25), `runs:` (a file somebody released), `fusions:`, `pipelines:` (the best of several) or
`aggregations:`; a dual encoder, searched exactly, or `<dual encoder>@<name of indexes:>`; `encoder`, a name of
`encoders:`, a folder or org/name on the hub, which are dual encoders without training; `<first stage>+<cross-encoder>`,
where a name of `ensembles:`, `rerankers:`, `llm_rerankers:` or `scorers:` may take the cross-encoder's place.
"""

from pathlib import Path

from tandem.config.datasets import Group
from tandem.config.indexes import Index, TermIndex
from tandem.config.representations import is_single
from tandem.config.validation import read
from tandem.errors import UserError, nearest
from tandem.plan import fusions, lexical
from tandem.plan.context import CROSS_PARTS, Context, json_of, require_depth, search
from tandem.plan.datasets import dataset, measures, reported_split, require_split, run_depth
from tandem.plan.encoders import dual_encoder, encoded, judge_with_tokens, judges
from tandem.plan.graph import JSON, Stage
from tandem.plan.rerankers import rerank_by_llm
from tandem.plan.sizes import dimension
from tandem.registry import options_of
from tandem.retrieval.indexes.types import SEARCHED, check
from tandem.stages import KINDS
from tandem.stages.retrieval import IndexParams, pair_scorer
from tandem.store.files import fingerprint

Opened = tuple[tuple[str, str], ...]  # fusions and aggregations that are being planned, outermost first


def run(ctx: Context, system: str, split: str, where: str, data: str, opened: Opened = ()) -> Stage:
    """The stage that writes a system's run on a split of a dataset; `where` names the key that refers to it."""
    settings, name = ctx.settings, f"{system}.{split}"
    require_split(ctx, data, split, f"{where}: searches")
    if ("run", system, split, data) in ctx.memo:
        return ctx.memo["run", system, split, data]
    first, plus, judge = system.rpartition("+")
    if plus:
        params = fusions.reranking(ctx, split, data)
        stage = _rerank(ctx, system, run(ctx, first, split, where, data, opened), judge, split, where, data, params)
    elif "@" not in system and ctx.is_sparse(system):
        stage = lexical.search(ctx, system, split, where, data)
    elif system == "given":
        stage = ctx.stage("given", data, name, searched(ctx, split, data), {"dataset": dataset(ctx, data)})
    elif system in settings.aggregations:
        stage = _aggregated(ctx, system, split, where, data, opened)
    elif system in settings.runs and settings.runs[system].stage:
        stage = _by_kind(ctx, system, split, where, data, opened)
    elif system in settings.runs:
        stage = imported(ctx, system, split, data)
    elif system in settings.fusions:
        stage = _fused(ctx, system, split, data, opened)
    elif system in settings.pipelines:
        stage = _chosen(ctx, system, split, data, opened)
    else:
        encoder, at, index = system.partition("@")
        kind = dual_encoder(ctx, encoder, where).params.representation.type
        stage = search[kind](ctx, encoder, split, where, data, index if at else None)
    ctx.memo["run", system, split, data] = stage
    return stage


def searched(ctx: Context, split: str, data: str) -> JSON:
    """What all searches have: the split, and how deep runs on it go."""
    return {"split": split, "depth": run_depth(ctx, split, data)}


def _by_kind(ctx: Context, system: str, split: str, where: str, data: str, opened: Opened) -> Stage:
    """The stage of a kind that the entry of `runs` names."""
    entry, at = ctx.settings.runs[system], f"runs.{system}"
    kind = entry.stage or ""
    allowed = [name for name, declared in KINDS.items() if declared.in_runs]
    if kind not in allowed:
        raise UserError(f"{at}.stage: {kind} is no kind of stage for `runs`{nearest(kind, allowed)}")
    model = KINDS[kind].params
    values = {**searched(ctx, split, data), **entry.params}
    params = read(model, values, f"{at}.params") if model else values
    pool = run(ctx, entry.of, split, f"{at}.of", data, _opened(opened, "runs", system)) if entry.of else None
    return ctx.stage(kind, data, f"{system}.{split}", params, {"dataset": dataset(ctx, data), "run": pool})


def _opened(opened: Opened, block: str, name: str) -> Opened:
    """The entries that are being planned with one more; a `UserError` where it is among them."""
    if (block, name) in opened:
        names = [other for at, other in opened if at == block]
        raise UserError(f"{block} form a cycle: {' -> '.join([*names, name])}")
    return (*opened, (block, name))


def imported(ctx: Context, system: str, split: str, data: str) -> Stage:
    """The stage that takes over a released run."""
    entry = ctx.settings.runs[system]
    path = Path(entry.paths.get(split, ""))
    if not path.is_file():
        have = ", ".join(entry.paths)
        raise UserError(f"runs.{system}.paths.{split}: {path} is no file; splits with a file: {have or 'none'}")
    params = {**json_of(entry, "format", "ties"), **searched(ctx, split, data), "fingerprint": fingerprint(path)}
    upstream = {"dataset": dataset(ctx, data)}
    return ctx.stage("imported", data, f"{system}.{split}", params, upstream, {"path": str(path)})


def fused_runs(ctx: Context, name: str, split: str, where: str, data: str, opened: Opened = ()) -> list[Stage]:
    """The runs that a fusion is made of."""
    opened = _opened(opened, "fusions", name)
    return [run(ctx, part, split, where, data, opened) for part in ctx.settings.fusions[name].of]


def _fused(ctx: Context, name: str, split: str, data: str, opened: Opened) -> Stage:
    entry = ctx.settings.fusions[name]
    fusions.fusion_depth(ctx, name, split, data)
    runs, tuning_runs = fused_runs(ctx, name, split, f"fusions.{name}.of", data, opened), None
    if entry.is_tuned:
        fusions.tuning(ctx, name, data)  # before its runs: where it is impossible, that is the reason
        tuning_runs = fused_runs(ctx, name, entry.tune.split, f"fusions.{name}.tune.split", data, opened)
    return fusions.fuse(ctx, name, split, data, runs, tuning_runs)


def pipeline_runs(ctx: Context, name: str, split: str, data: str, opened: Opened = ()) -> dict[str, Stage]:
    """Role → stage of the systems that a pipeline is chosen from: re-ranked ones at the largest depth, and of what."""
    opened, at = _opened(opened, "pipelines", name), f"pipelines.{name}"
    deepest, upstream = fusions.depths(ctx, name)[-1], {"dataset": dataset(ctx, data)}
    for number, system in enumerate(fusions.members(ctx, name)):
        first, plus, judge = system.rpartition("+")
        entry = ctx.settings.llm_rerankers.get(judge)
        if entry and entry.method != "yes_no":
            raise UserError(f"{at}.of: {judge} orders passages together, no depth of it is a part of another")
        if plus:
            upstream[f"first.{number}"] = pool = run(ctx, first, split, f"{at}.of", data, opened)
            params = fusions.reranking(ctx, split, data, f"{at}.depths", deepest)
            upstream[f"run.{number}"] = _rerank(ctx, system, pool, judge, split, f"{at}.of", data, params)
        else:
            upstream[f"run.{number}"] = run(ctx, system, split, f"{at}.of", data, opened)
    return upstream


def _chosen(ctx: Context, name: str, split: str, data: str, opened: Opened) -> Stage:
    on, params = ctx.settings.pipelines[name].split, fusions.choice(ctx, name, data)
    chosen = ctx.stage("choose_pipeline", data, f"{name}.{on}", params, pipeline_runs(ctx, name, on, data, opened))
    upstream = pipeline_runs(ctx, name, split, data, opened) | {"chosen": chosen}
    return ctx.stage("pipeline", data, f"{name}.{split}", searched(ctx, split, data), upstream)


def _aggregated(ctx: Context, name: str, split: str, where: str, data: str, opened: Opened) -> Stage:
    entry, documents = ctx.settings.aggregations[name], fusions.documents_of(ctx, name)
    if documents != data:
        raise UserError(f"{where}: {name} searches windows of {documents} ({entry.windows}), not of {data}")
    opened = _opened(opened, "aggregations", name)
    searched = entry.windows if entry.by is None else data
    pool = run(ctx, entry.of, split, f"aggregations.{name}.of", searched, opened)
    combine = fusions.aggregate if entry.by is None else fusions.rerank_windows
    return combine(ctx, name, split, data, pool)


def _rerank(
    ctx: Context, system: str, pool: Stage, judge: str, split: str, where: str, data: str, params: JSON
) -> Stage:
    require_depth(pool, params["depth"], "rerank.depth")
    upstream = {"dataset": dataset(ctx, data), "run": pool}
    if judge in ctx.settings.llm_rerankers:
        return rerank_by_llm(ctx, system, judge, upstream, params["depth"], split)
    if judge in ctx.settings.scorers:
        params = {"depth": params["depth"], **_scorer(ctx, judge)}
    elif judge in ctx.settings.ensembles:
        upstream |= judges(ctx, [judge], where, data, CROSS_PARTS)
    else:
        upstream["model"], upstream["tokens"] = judge_with_tokens(ctx, judge, where, data, CROSS_PARTS)
    return ctx.stage("rerank", data, f"{system}.{split}", params, upstream)


def _scorer(ctx: Context, name: str) -> JSON:
    """A plugin's scorer and its options, with their defaults."""
    entry, at = ctx.settings.scorers[name], f"scorers.{name}"
    if name in ctx.settings.ensembles or ctx.has_model(name):
        raise UserError(f"{at} has the name of a model or an ensemble; name it otherwise")
    if entry.scorer not in pair_scorer:
        known = ", ".join(pair_scorer) or "none; name the plugin that registers it under plugins"
        raise UserError(f"{at}.scorer: {entry.scorer} is no pair scorer; registered: {known}")
    options = read(options_of(pair_scorer[entry.scorer]), entry.params, f"{at}.params")
    return {"scorer": entry.scorer, "options": options.model_dump(mode="json")}


def embedded_queries(ctx: Context, system: str, split: str, where: str, data: str) -> Stage:
    """The stage that embeds a split's queries by a dual encoder."""
    encode = json_of(ctx.settings.encode) | {"dtype": ctx.settings.encode.query_dtype}
    return _embeddings(ctx, system, split, {"side": "queries", "split": split, **encode}, where, data)


def vectors(ctx: Context, system: str, split: str, where: str, data: str) -> dict[str, Stage]:
    """What a dual encoder's retrieval reads: the dataset, its passages' vectors and those of a split's queries."""
    encode = json_of(ctx.settings.encode)
    passages = _embeddings(ctx, system, "passages", {"side": "passages", **encode}, where, data)
    queries = embedded_queries(ctx, system, split, where, data)
    return {"dataset": dataset(ctx, data), "passages": passages, "queries": queries}


def _embeddings(ctx: Context, system: str, label: str, params: JSON, where: str, data: str) -> Stage:
    kind = dual_encoder(ctx, system, where).params.representation
    if not is_single(kind):
        raise UserError(f"{where}: {system} is of representation {kind.type}; this needs single vectors")
    return encoded(ctx, "embeddings", system, label, params, where, data)


@search("single")
def search_vectors(ctx: Context, system: str, split: str, where: str, data: str, name: str | None) -> Stage:
    """The stage that searches single vectors exactly, or through the index of a name."""
    if name is None:
        upstream, how = vectors(ctx, system, split, where, data), ctx.execution("engine", "search_memory")
        label = f"{dual_encoder(ctx, system, where).name}.{split}"
        return ctx.stage("retrieve", data, label, searched(ctx, split, data), upstream, how)
    entry = index_entry(ctx, name, f"{where}: {system}@{name}")
    upstream = vectors(ctx, system, split, where, data)
    upstream["index"] = built = index(ctx, upstream["passages"], name, data)
    own = {key: value for key, value in json_of(entry).items() if key in SEARCHED}
    params = searched(ctx, split, data) | own
    return ctx.stage("ann", data, f"{built.name}.{split}", params, upstream, ctx.execution("index_gpu", "devices"))


def any_index(ctx: Context, name: str, where: str, *more: str) -> Index | TermIndex:
    """An entry of `indexes`; `where` names the key that refers to it, which may also name one of `more`."""
    known = ctx.settings.indexes
    if name not in known:
        raise UserError(f"{where}: {name} is no index{nearest(name, [*known, *more])}")
    return known[name]


def index_entry(ctx: Context, name: str, where: str) -> Index:
    """The same of vectors."""
    entry = any_index(ctx, name, where)
    if not isinstance(entry, Index):
        raise UserError(f"{where}: {name} searches weights of terms, not vectors; name an index of another type")
    return entry


def index_params(entry: Index, seed: int) -> IndexParams:
    """The parameters of an index, of an entry that also says how it is searched; `seed` is the configuration's."""
    own = {key: value for key, value in json_of(entry).items() if key not in SEARCHED}
    if "seed" in own and own["seed"] is None:
        own["seed"] = seed
    return IndexParams.model_validate(own)


def index(ctx: Context, passages: Stage, name: str, data: str) -> Stage:
    """The stage that builds an index of a dual encoder's passages."""
    params = index_params(index_entry(ctx, name, f"indexes.{name}"), ctx.settings.seed)
    if passages.kind == "embeddings":  # of tokens' vectors, how many there are and their size is known later
        rows = (ctx.dataset_entry(data).counts or {}).get("passages")
        size = dimension(ctx, passages.upstream["model"].values, passages.upstream["tokens"]) if params.m else None
        check(params, f"indexes.{name}", rows, size)
    label = f"{passages.upstream['model'].name}@{name}"
    return ctx.stage("index", data, label, params, {"passages": passages}, ctx.execution("index_gpu", "devices"))


def score(ctx: Context, system: str, where: str, data: str, **restricted: Stage | None) -> Stage:
    """The stage that measures a system's run on the split that is reported; a group's is averaged.

    `restricted`: `labels`, whose qrels replace the dataset's; `subset`, to whose queries the score is restricted,
    or `others`, whose queries it leaves out.
    """
    entry, split = ctx.dataset_entry(data), reported_split(ctx, data)
    if isinstance(entry, Group):
        members = {f"member.{i}": score(ctx, system, where, name) for i, name in enumerate(entry.of)}
        params = {"measures": measures(ctx, data), "split": split, "members": list(entry.of)}
        return ctx.stage("score", data, f"{system}.{split}", params, members)
    return score_by(ctx, system, where, data, measures(ctx, data), split, **restricted)


def score_by(
    ctx: Context, system: str, where: str, data: str, by: list[str], split: str, **restricted: Stage | None
) -> Stage:
    """The same for one dataset by any measures on any split."""
    entry, collection = ctx.dataset_entry(data), dataset(ctx, data)
    ranking = run(ctx, system, split, where, data)
    params: JSON = {"measures": by, "split": split, "ignore_identical_ids": entry.ignore_identical_ids}
    upstream = {"dataset": collection, "run": ranking, **restricted}
    if entry.relevance == "answers":
        upstream["match"] = match(ctx, ranking, split, data)
    return ctx.stage("score", data, ranking.name, params, upstream)


def match(ctx: Context, ranking: Stage, split: str, data: str) -> Stage:
    """The stage that finds the answers in a run's passages."""
    depth = run_depth(ctx, split, data)
    params = {"match": ctx.dataset_entry(data).match, "depth": depth, "split": split, "title": False}
    return ctx.stage("match", data, ranking.name, params, {"dataset": dataset(ctx, data), "run": ranking})
