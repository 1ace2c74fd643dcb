"""Runs and their scores: which stages write and measure the run that an expression names.

`bm25`; `bm25.<analyzer>` (the same with another analyzer); `given` (the dataset's own training lists); a name of
`sparse:` (a variant of bm25), `runs:` (a file somebody released), `fusions:`, `pipelines:` (the best of several) or
`aggregations:`, or `expansions:` (over passages with generated queries); a dual encoder, searched exactly, or
`<dual encoder>@<name of indexes:>`; `encoder`, a name of
`encoders:`, a folder or org/name on the hub, which are dual encoders without training; `<first stage>+<cross-encoder>`,
where a name of `ensembles:`, `rerankers:`, `comparisons:`, `llm_rerankers:` or `scorers:` may take the cross-encoder's
place.
"""

from collections.abc import Iterable
from pathlib import Path

from tandem.config.datasets import Group, Perturbed
from tandem.config.language_models import HostedModel
from tandem.config.models import COMPARING
from tandem.config.references import CROSS_PARTS, Name
from tandem.config.validation import read
from tandem.data.reading import check_run
from tandem.errors import Unavailable, UserError, nearest, printable
from tandem.plan import fusions, lexical
from tandem.plan.context import RUNS, Context, Upstream, json_of, require_depth, search
from tandem.plan.datasets import check_group, dataset, expanded_dataset, require_split
from tandem.plan.encoders import dual_encoder, judge_with_tokens, judges
from tandem.plan.graph import Stage
from tandem.plan.references import Scope, number_roles
from tandem.plan.reported import measures, reported_split, run_depth, searched
from tandem.plan.towers import HUB, pinned
from tandem.registry import options_of
from tandem.stages import KINDS
from tandem.stages.base import Json
from tandem.stages.retrieval import pair_scorer
from tandem.store.files import fingerprint


def run(
    ctx: Context,
    system: str,
    split: str,
    where: str,
    data: str,
    also: Iterable[str] = (),
) -> Stage:
    """The stage that writes a system's run on a split of a dataset.

    `where` names the key that refers to it, or to one of `also`.
    """
    settings, name = ctx.settings, f"{system}.{split}"
    require_split(ctx, data, split, f"{where}: searches")
    if ("run", system, split, data) in ctx.memo:
        return ctx.memo["run", system, split, data]
    first, plus, judge = system.rpartition("+")
    if plus:
        params = fusions.reranking(ctx, split, data)
        stage = _rerank(ctx, system, run(ctx, first, split, where, data), judge, split, where, data, params)
    elif "@" not in system and ctx.is_sparse(system):
        stage = lexical.search(ctx, system, split, where, data)
    elif system == "given":
        stage = ctx.stage("given", data, name, searched(ctx, split, data), {"dataset": dataset(ctx, data)})
    elif system in settings.aggregations:
        stage = _aggregated(ctx, system, split, where, data)
    elif system in settings.perturbed:
        stage = _perturbed(ctx, system, split, where, data)
    elif system in settings.expansions:
        stage = _expanded(ctx, system, split, data)
    elif system in settings.runs and settings.runs[system].stage:
        stage = _by_kind(ctx, system, split, where, data)
    elif system in settings.runs:
        stage = imported(ctx, system, split, data)
    elif system in settings.fusions:
        stage = _fused(ctx, system, split, data)
    elif system in settings.pipelines:
        stage = _chosen(ctx, system, split, data)
    else:
        encoder, at, index = system.partition("@")
        known = () if at else (*named_runs(ctx), *also)
        kind = dual_encoder(ctx, encoder, where, known).params.representation.type
        stage = search[kind](ctx, encoder, split, where, data, index if at else None)
    ctx.memo["run", system, split, data] = stage
    return stage


def plan_named(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the run, or each of the runs, that a key names."""
    return number_roles(name, [run(ctx, each, scope.split, name.path, scope.dataset) for each in name.names])


def named_runs(ctx: Context) -> list[str]:
    """The names of runs that are no dual encoder's."""
    return ["bm25", "given", *(name for block in RUNS for name in getattr(ctx.settings, block))]


def _by_kind(ctx: Context, system: str, split: str, where: str, data: str) -> Stage:
    """The stage of a kind that the entry of `runs` names."""
    entry, at = ctx.settings.runs[system], f"runs.{system}"
    kind = entry.stage or ""
    allowed = [name for name, declared in KINDS.items() if declared.in_runs]
    if kind not in allowed:
        raise UserError(f"{at}.stage: {kind} is no kind of stage for `runs`{nearest(kind, allowed)}")
    model = KINDS[kind].params
    values = {**searched(ctx, split, data), **entry.params}
    if model and (lacking := values.keys() - entry.params.keys() - model.model_fields.keys()):
        names = " and ".join(sorted(lacking))
        raise UserError(f"{at}.stage: {kind} has no parameter {names}, as runs do; derive its model from RunParams")
    params = read(model, values, f"{at}.params") if model else values
    with ctx.opening("runs", system):
        pool = run(ctx, entry.of, split, f"{at}.of", data) if entry.of else None
    return ctx.stage(kind, data, f"{system}.{split}", params, {"dataset": dataset(ctx, data), "run": pool})


def imported(ctx: Context, system: str, split: str, data: str) -> Stage:
    """The stage that takes over a released run."""
    entry, at = ctx.settings.runs[system], f"runs.{system}.paths.{split}"
    path = Path(entry.paths.get(split, ""))
    if not path.is_file():
        have = ", ".join(entry.paths)
        problem = f"{path} is no file" if split in entry.paths else "missing"
        raise UserError(f"{at}: {problem}; splits with a file: {have or 'none'}")
    try:
        check_run(path, entry.format)
    except UserError as error:
        raise UserError(f"{at}: {error}") from None
    params = {**json_of(entry, "format", "ties"), **searched(ctx, split, data), "fingerprint": fingerprint(path)}
    upstream = {"dataset": dataset(ctx, data)}
    return ctx.stage("imported", data, f"{system}.{split}", params, upstream, {"path": str(path)})


def fused_runs(ctx: Context, name: str, split: str, where: str, data: str) -> dict[str, Stage]:
    """The inputs of a fusion, by role: the dataset and the runs."""
    with ctx.opening("fusions", name):
        runs = [run(ctx, part, split, where, data) for part in ctx.settings.fusions[name].of]
    return {"dataset": dataset(ctx, data), **{f"run.{at}": stage for at, stage in enumerate(runs)}}


def _fused(ctx: Context, name: str, split: str, data: str) -> Stage:
    entry, at = ctx.settings.fusions[name], f"fusions.{name}"
    depth = fusions.fusion_depth(ctx, name, split, data)
    params: Json = {"method": entry.method, "depth": depth, "split": split, **fusions.other_keys(entry)}
    upstream = fused_runs(ctx, name, split, f"{at}.of", data)
    if entry.is_tuned:
        tuning = fusions.tuning(ctx, name, data)  # before its runs: where it is impossible, that is the reason
        on = entry.tune.split
        inputs = fused_runs(ctx, name, on, f"{at}.tune.split", data)
        upstream["tuned"] = ctx.stage("tune_fusion", data, f"{name}.{on}", tuning, inputs)
    elif key := entry.method_keys.tuned:
        params |= json_of(entry, key)
    return ctx.stage("fuse", data, f"{name}.{split}", params, upstream)


def pipeline_runs(ctx: Context, name: str, split: str, data: str) -> dict[str, Stage]:
    """Role → stage of the systems that a pipeline is chosen from, at the largest depth, and of their first stages."""
    with ctx.opening("pipelines", name):
        return _pipeline_runs(ctx, name, split, data)


def _pipeline_runs(ctx: Context, name: str, split: str, data: str) -> dict[str, Stage]:
    at, deepest, upstream = f"pipelines.{name}", fusions.depths(ctx, name)[-1], {"dataset": dataset(ctx, data)}
    for number, system in enumerate(fusions.members(ctx, name)):
        first, plus, judge = system.rpartition("+")
        entry = ctx.settings.llm_rerankers.get(judge)
        if (entry and entry.method != "yes_no") or judge in ctx.settings.comparisons:
            raise UserError(f"{at}.of: {judge} orders passages together, no depth of it is a part of another")
        if plus:
            upstream[f"first.{number}"] = pool = run(ctx, first, split, f"{at}.of", data)
            params = fusions.reranking(ctx, split, data, f"{at}.depths", deepest)
            upstream[f"run.{number}"] = _rerank(ctx, system, pool, judge, split, f"{at}.of", data, params)
        else:
            upstream[f"run.{number}"] = run(ctx, system, split, f"{at}.of", data)
    return upstream


def _chosen(ctx: Context, name: str, split: str, data: str) -> Stage:
    on, params = ctx.settings.pipelines[name].split, fusions.choice(ctx, name, data)
    chosen = ctx.stage("choose_pipeline", data, f"{name}.{on}", params, pipeline_runs(ctx, name, on, data))
    upstream = pipeline_runs(ctx, name, split, data) | {"chosen": chosen}
    return ctx.stage("pipeline", data, f"{name}.{split}", searched(ctx, split, data), upstream)


def _aggregated(ctx: Context, name: str, split: str, where: str, data: str) -> Stage:
    """The stage that aggregates a run over windows, or scores the windows of a run's documents by cross-encoders."""
    entry, at, documents = ctx.settings.aggregations[name], f"aggregations.{name}", fusions.documents_of(ctx, name)
    if documents != data:
        raise UserError(f"{where}: {name} searches windows of {documents} ({entry.windows}), not of {data}")
    with ctx.opening("aggregations", name):
        pool = run(ctx, entry.of, split, f"{at}.of", entry.windows if entry.by is None else data)
    params: Json = {"method": entry.method, "split": split} | ({"k": entry.k} if entry.method in fusions.K else {})
    upstream = {"dataset": dataset(ctx, data), "windows": dataset(ctx, entry.windows), "run": pool}
    if entry.by is None:
        params["depth"] = run_depth(ctx, split, data)
        if entry.method in fusions.MISSING:
            # A sum over hundreds of lowest scores would be about the length of a document.
            params["missing"] = entry.missing or ("zero" if entry.method == "sum" else "lowest")
        return ctx.stage("aggregate", data, f"{name}.{split}", params, upstream)
    params |= fusions.reranking(ctx, split, data)
    require_depth(pool, params["depth"], "rerank.depth")
    # Most logits are negative: their sum would be the lower the more windows a document has.
    params["scores"] = entry.scores or ("probability" if entry.method == "sum" else "raw")
    upstream |= judges(ctx, [entry.by], f"{at}.by", entry.windows, CROSS_PARTS)
    return ctx.stage("rerank_windows", data, f"{name}.{split}", params, upstream)


def _perturbed(ctx: Context, name: str, split: str, where: str, data: str) -> Stage:
    """The stage that makes a run on broken queries one on the queries that they were."""
    entry, at = ctx.settings.perturbed[name], f"perturbed.{name}"
    broken = ctx.dataset_entry(entry.dataset)
    if not isinstance(broken, Perturbed):
        raise UserError(f"{at}.dataset is {printable(entry.dataset)}, which is no dataset of source perturbed")
    if entry.kind not in broken.kinds:
        kinds = ", ".join(broken.kinds)
        raise UserError(f"{at}.kind is {entry.kind}, but datasets.{entry.dataset}.kinds has {kinds}")
    if broken.of != data:
        raise UserError(f"{where}: {name} is on queries of {broken.of} ({entry.dataset}), not of {data}")
    if broken.split != split:
        raise Unavailable(f"{where}: {name} is on split {split}, but {entry.dataset} breaks {broken.split} alone")
    asked = f"{split}_{entry.kind}"
    with ctx.opening("perturbed", name):
        ranking = run(ctx, entry.of, asked, f"{at}.of", entry.dataset)
    upstream = {"dataset": dataset(ctx, data), "perturbed": dataset(ctx, entry.dataset), "run": ranking}
    params = {"split": split, "depth": run_depth(ctx, asked, entry.dataset), "kind": entry.kind}
    return ctx.stage("restore_queries", data, f"{name}.{split}", params, upstream)


def _expanded(ctx: Context, name: str, split: str, data: str) -> Stage:
    """The stage that makes a run over passages with generated queries one over the passages themselves."""
    entry, at, label = ctx.settings.expansions[name], f"expansions.{name}", expanded_dataset(ctx, name, data)
    with ctx.opening("expansions", name):
        pool = run(ctx, entry.of, split, f"{at}.of", label)
    upstream = {"dataset": dataset(ctx, data), "expanded": dataset(ctx, label), "run": pool}
    return ctx.stage("expansion", data, f"{name}.{split}", searched(ctx, split, data), upstream)


def _rerank(
    ctx: Context, system: str, pool: Stage, judge: str, split: str, where: str, data: str, params: Json
) -> Stage:
    require_depth(pool, params["depth"], "rerank.depth")
    upstream: dict[str, Stage] = {"dataset": dataset(ctx, data), "run": pool}
    if judge in ctx.settings.llm_rerankers:
        own, execution = llm_stage(ctx.settings.llm_rerankers[judge], f"llm_rerankers.{judge}")
        own["depth"] = min(params["depth"], own.pop("top", params["depth"]))
        return ctx.stage("rerank_llm", data, f"{system}.{split}", own, upstream, execution)
    if judge in ctx.settings.comparisons:
        return _compared(ctx, system, judge, split, data, upstream, params)
    if judge in ctx.settings.scorers:
        params = {"depth": params["depth"], **_scorer(ctx, judge)}
    elif judge in ctx.settings.ensembles:
        upstream |= judges(ctx, [judge], where, data, CROSS_PARTS)
    else:
        also = (*ctx.settings.scorers, *ctx.settings.comparisons, *ctx.settings.llm_rerankers)
        upstream["model"], upstream["tokens"] = judge_with_tokens(ctx, judge, where, data, CROSS_PARTS, also)
    return ctx.stage("rerank", data, f"{system}.{split}", params, upstream)


def _compared(
    ctx: Context, system: str, name: str, split: str, data: str, upstream: dict[str, Stage], params: Json
) -> Stage:
    """The stage that orders a run's top by an entry of `comparisons`; those of one model share its scores."""
    check_comparison(ctx, name)
    entry, at = ctx.settings.comparisons[name], f"comparisons.{name}.by"
    depth = min(params["depth"], entry.top)
    model, tokens = judge_with_tokens(ctx, entry.by, at, data, (COMPARING,))
    inputs = {**upstream, "model": model, "tokens": tokens}
    pool = upstream["run"].name.rpartition(".")[0]
    compared = ctx.stage("compare", data, f"{pool}+{entry.by}.{split}", {**ctx.scoring, "depth": depth}, inputs)
    own: Json = {"depth": depth, "aggregate": entry.aggregate}
    return ctx.stage("rerank_compared", data, f"{system}.{split}", own, {**upstream, "compared": compared})


def check_comparison(ctx: Context, name: str) -> None:
    """Refuse an entry of `comparisons` whose model does not compare passages."""
    by = ctx.settings.comparisons[name].by
    entry = ctx.settings.models.get(ctx.model_name(by))
    if entry is not None and entry.sort != COMPARING:
        raise UserError(
            f"comparisons.{name}.by is {by}, which scores single passages; name a model with compares: true"
        )
    ctx.check_model(ctx.model_name(by), f"comparisons.{name}.by", (COMPARING,))


def _scorer(ctx: Context, name: str) -> Json:
    """A plugin's scorer and its options, with their defaults."""
    entry, at = ctx.settings.scorers[name], f"scorers.{name}"
    if entry.scorer not in pair_scorer:
        known = ", ".join(pair_scorer) or "none; name the plugin that registers it under plugins"
        raise UserError(f"{at}.scorer: {entry.scorer} is no pair scorer; registered: {known}")
    options = read(options_of(pair_scorer[entry.scorer]), entry.params, f"{at}.params")
    return {"scorer": entry.scorer, "options": options.model_dump(mode="json")}


def llm_stage(entry: HostedModel, at: str) -> tuple[Json, Json]:
    """Parameters and execution of a stage that asks a language model; `at` is the path of its entry."""
    check_llm(entry, at)
    params, execution = json_of(entry), {}
    if entry.endpoint:
        params["url"], execution["endpoint"] = entry.endpoint.url, json_of(entry.endpoint)
    elif Path(entry.model).is_dir():
        params["fingerprint"] = fingerprint(Path(entry.model))
    else:
        params["revision"] = pinned(entry.model, entry.revision)
    return params, execution


def check_llm(entry: HostedModel, at: str) -> None:
    """Refuse an entry whose model in this process is neither a folder with safetensors nor a name of the hub."""
    if entry.endpoint:
        return
    folder = Path(entry.model)
    if not folder.is_dir() and not HUB.fullmatch(entry.model):
        raise UserError(f"{at}.model is {entry.model}, neither a folder nor organisation/name; or name an endpoint")
    if folder.is_dir() and not list(folder.glob("*.safetensors")):
        raise UserError(f"{at}.model: {folder} holds no safetensors; only these are loaded")


def score(
    ctx: Context,
    system: str,
    where: str,
    data: str,
    by: list[str] | None = None,
    split: str | None = None,
    restricted: Upstream | None = None,
) -> Stage:
    """The stage that measures a system's run; a group's is averaged.

    Args:
        by: measures; None: those that are reported.
        split: likewise.
        restricted: `labels`, whose qrels replace the dataset's; `subset`, to whose queries the score is restricted, or
            `others`, whose queries it leaves out.
    """
    entry, split = ctx.dataset_entry(data), split or reported_split(ctx, data)
    if isinstance(entry, Group):
        check_group(ctx, data)
        by = by or measures(ctx, data)
        members = {f"member.{i}": score(ctx, system, where, name, by) for i, name in enumerate(entry.of)}
        params: Json = {"measures": by, "split": split, "members": list(entry.of)}
        return ctx.stage("score", data, f"{system}.{split}", params, members)
    params = {"measures": by or measures(ctx, data), "split": split, "ignore_identical_ids": entry.ignore_identical_ids}
    collection, ranking = dataset(ctx, data), run(ctx, system, split, where, data)
    upstream = {"dataset": collection, "run": ranking, **(restricted or {})}
    if entry.relevance == "answers":
        upstream["match"] = match(ctx, ranking, split, data)
    return ctx.stage("score", data, ranking.name, params, upstream)


def match(ctx: Context, ranking: Stage, split: str, data: str) -> Stage:
    """The stage that finds the answers in a run's passages."""
    depth = run_depth(ctx, split, data)
    params = {"match": ctx.dataset_entry(data).match, "depth": depth, "split": split, "title": False}
    return ctx.stage("match", data, ranking.name, params, {"dataset": dataset(ctx, data), "run": ranking})
