"""The audits that papers' tables need: similar queries, false negatives, and the labels that follow from them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tandem.config.datasets import Dissimilar
from tandem.config.references import CROSS_PARTS
from tandem.data.splits import sort_key
from tandem.errors import UserError, nearest
from tandem.plan.context import Context, json_of, list_system_blocks, plans_dataset
from tandem.plan.datasets import dataset, make_dataset, may_have_split, splits
from tandem.plan.encoders import judges
from tandem.plan.graph import Stage
from tandem.plan.references import Scope, plan_references
from tandem.plan.reported import reported_split
from tandem.plan.rerankings import check_llm, llm_stage
from tandem.plan.runs import run
from tandem.plan.searches import plan_encoding
from tandem.stages.base import Json
from tandem.stages.evaluation import list_decisive_files
from tandem.store.files import fingerprint, sha256_once

JUDGES = ("models", "rerankers", "ensembles")  # blocks of the configuration whose entries judge


def is_trainable(ctx: Context, data: str) -> bool:
    """Return whether the configuration's models can be trained for a dataset."""
    return may_have_split(ctx, ctx.settings.train_on or data, "train")


def check_audits(ctx: Context) -> None:
    """Refuse names and a language model in `audits` that do not exist."""
    _check_names(ctx)
    if judge := ctx.settings.audits.llm_judge:
        check_llm(judge, "audits.llm_judge")


def _check_names(ctx: Context) -> None:
    """Refuse names in `audits` that the configuration itself writes and does not have; the defaults' may be absent."""
    entry = ctx.settings.audits
    written: dict[str, list[str]] = {}
    if "retriever" in entry.model_fields_set and entry.retriever:
        written["audits.retriever"] = [entry.retriever]
    if "judges" in entry.model_fields_set:
        written["audits.judges"] = list(entry.judges)
    if entry.similar_queries.judges:
        written["audits.similar_queries.judges"] = list(entry.similar_queries.judges)
    if "systems" in entry.model_fields_set:
        parts: list[str] = []
        for system in entry.systems:
            parts += [part.partition("@")[0] for part in system.split("+")]
        written["audits.systems"] = [part for part in parts if not (ctx.is_sparse(part) or ctx.untrained(part))]

    for key, names in written.items():
        blocks = list_system_blocks() if key == "audits.systems" else JUDGES
        known = ctx.list_names(blocks)
        for name in names:
            if name not in known and not ctx.has_model(name):
                raise UserError(f"{key}: {name} is unknown{nearest(name, known)}")


def audit_judges(ctx: Context, data: str, own: Sequence[str] | None = None) -> list[str]:
    """Return the audits' cross-encoders: those that the configuration has, and models only where they can be trained.

    `own` are those of one audit; None: those of all.
    """
    chosen = ctx.settings.audits.judges if own is None else own
    trainable = is_trainable(ctx, data)
    names = ctx.members(list(chosen))
    return [name for name in names if name in ctx.settings.rerankers or (trainable and ctx.has_model(name))]


def audit_retriever(ctx: Context, data: str) -> str | None:
    """Return the dual encoder that proposes pairs of queries, under the same condition."""
    name = ctx.settings.audits.retriever
    if name is None or ctx.model_name(name) not in ctx.settings.models:
        return None
    return name if is_trainable(ctx, data) else None


def audited_systems(ctx: Context, data: str) -> list[str]:
    """Return the runs of `audits.systems` that are available."""
    trainable = is_trainable(ctx, data)
    return [name for name in ctx.settings.audits.systems if _is_available(ctx, name, trainable)]


def _is_available(ctx: Context, system: str, trainable: bool) -> bool:
    """Return whether a system is available: models only if they can be trained, fusions if all their runs are."""
    settings = ctx.settings
    for part in system.split("+"):
        needed: list[str] = []
        combined = settings.fusions.get(part) or settings.pipelines.get(part) or settings.ensembles.get(part)
        aggregation = settings.aggregations.get(part)
        if combined:
            needed = list(combined.of)
        elif aggregation:
            needed = [aggregation.of]
            if aggregation.by:
                needed.append(aggregation.by)
        elif ctx.is_sparse(part) or part in {**settings.runs, **settings.rerankers, **settings.llm_rerankers}:
            continue
        elif not trainable or ctx.model_name(part.partition("@")[0]) not in settings.models:
            return False
        if not all(_is_available(ctx, name, trainable) for name in needed):
            return False
    return True


def similar_queries(ctx: Context, data: str) -> Stage:
    """Return the audit of training queries that are similar to others."""
    entry = ctx.settings.audits.similar_queries
    where = "audits.judges" if entry.judges is None else "audits.similar_queries.judges"
    judged = judges(ctx, audit_judges(ctx, data, entry.judges), where, data, CROSS_PARTS)
    upstream = {"dataset": dataset(ctx, data), **judged}

    known = splits(ctx, data) or {"train", "dev", "test"}
    others = sorted(known - {"train"}, key=sort_key)
    if retriever := audit_retriever(ctx, data):
        for split in ("train", *others):
            upstream[f"vectors.{split}"] = plan_encoding(ctx, "embeddings", retriever, "audits.retriever", data, split)
    params = {**json_of(entry), "splits": others, **ctx.scoring}
    return ctx.stage("similar_queries", data, "similar", params, upstream)


@plans_dataset("dissimilar")
def plan_dissimilar(ctx: Context, name: str, entry: Dissimilar) -> Stage:
    """Plan a dataset without the training queries that are similar to others."""
    similar = ctx.similar.get(entry.of) or similar_queries(ctx, entry.of)
    inputs = plan_references(ctx, entry, f"datasets.{name}", Scope(entry.of, "train"))
    return make_dataset(ctx, name, entry, inputs | {"similar": similar})


def false_negatives(ctx: Context, data: str) -> Stage:
    """Return the audit of unlabelled passages that a judge finds relevant."""
    split = reported_split(ctx, data)
    upstream = {"dataset": dataset(ctx, data), **audited_runs(ctx, split, data)}
    upstream |= judges(ctx, audit_judges(ctx, data), "audits.judges", data, CROSS_PARTS)
    params = {**json_of(ctx.settings.audits.false_negatives), "split": split, **ctx.scoring}
    return ctx.stage("false_negatives", data, f"unlabelled.{split}", params, upstream)


def audited_runs(ctx: Context, split: str, data: str) -> dict[str, Stage]:
    """Return the runs that are pooled, by role."""
    systems = audited_systems(ctx, data)
    return {f"run.{i}": run(ctx, name, split, "audits.systems", data) for i, name in enumerate(systems)}


def relabel(ctx: Context, data: str) -> Stage:
    """Return the qrels after the audit: the annotators' where there is a sheet, else the judge's verdict."""
    entry = ctx.settings.audits.false_negatives
    pool = false_negatives(ctx, data)
    params: Json = {"split": reported_split(ctx, data), "threshold": entry.threshold}
    execution: Json = {}
    if entry.sheet is not None:
        path = Path(entry.sheet)
        if path.is_dir():
            params["fingerprint"] = fingerprint(path, list_decisive_files(path))
        elif path.is_file():
            # Whole: whoever corrects a verdict changes a sheet in its middle, and not its size.
            params["fingerprint"] = sha256_once(path)
        else:
            hint = "no such file; a folder of packages is begun by `tandem annotate`"
            raise UserError(f"audits.false_negatives.sheet is {entry.sheet}; {hint}")
        execution["path"] = entry.sheet
    return ctx.stage("relabel", data, pool.name, params, {"dataset": dataset(ctx, data), "pool": pool}, execution)


def judge_llm(ctx: Context, data: str) -> Stage:
    """Return the grades of the language model `audits.llm_judge`, and the qrels with them.

    Raises:
        UserError: answers decide what is relevant, so that there are no judgements.
    """
    entry = ctx.settings.audits.llm_judge
    at = "audits.llm_judge"
    if entry is None:
        raise UserError(f"{at}: names no language model")
    if ctx.dataset_entry(data).relevance != "qrels":
        raise UserError(f"{at}: answers decide what is relevant in {data}, nothing is judged there; leave it out")
    split = reported_split(ctx, data)
    pool = false_negatives(ctx, data)
    params, execution = llm_stage(entry, at)
    params |= {"split": split, "seed": ctx.settings.seed}
    upstream = {"dataset": dataset(ctx, data), "pool": pool, **audited_runs(ctx, split, data)}
    return ctx.stage("judge_llm", data, pool.name, params, upstream, execution)


AUDITS: dict[str, Callable[[Context, str], Stage]] = {
    "similar_queries": similar_queries,
    "false_negatives": false_negatives,
    "relabel": relabel,
    "judge_llm": judge_llm,
}
