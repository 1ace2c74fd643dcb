"""The audits as stages, the page that shows them, and what layouts use of them: labels, queries, a dataset."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from tandem.config.base import Section
from tandem.config.datasets import UNSPACED
from tandem.config.references import CROSS_PARTS, names_in
from tandem.contrib.audits.options import (
    Audits,
    Dissimilar,
    FalseNegativesAudit,
    LlmJudge,
    list_decisive_files,
)
from tandem.data.splits import LEARNED, sort_key
from tandem.errors import Unavailable, UserError, nearest
from tandem.extras.judges import has_learned_probabilities
from tandem.extras.language_models.plan import check_llm, llm_stage
from tandem.extras.planning import find_originals, notes_of
from tandem.plan.context import (
    Context,
    Upstream,
    checks_section,
    json_of,
    list_system_blocks,
    plans_dataset,
    plans_reranking,
    plans_run,
    plans_variant,
    plans_view,
    restricts_score,
)
from tandem.plan.dataset_stages import dataset, make_dataset, may_have_split, splits
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references
from tandem.plan.plan import Check, Plan, ReportPart, View
from tandem.plan.reported import find_depth_key, reported_split, run_depth
from tandem.plan.run_expressions import run
from tandem.plan.searches import plan_encoding
from tandem.plan.starting_encoders import judges
from tandem.stages.base import Json
from tandem.store.files import fingerprint, sha256_once

# blocks of the configuration whose entries can be judges
_JUDGING_BLOCKS = ("models", "rerankers", "ensembles")
# kinds of names in an entry from which its run is made
_MAKES_RUNS = ("run", "dual encoder", "cross-encoder")
_SIMILAR = "similar_queries"
# Two queries are similar above a probability, or a cosine of their words, of 0.5. Vectors of a dual encoder are often
# closer than that for queries that are from one field and ask for different things.
_SIMILAR_PROBABILITY = 0.5
_SIMILAR_VECTORS = 0.8


def read_settings(ctx: Context) -> Audits:
    """Return the configuration's key `audits`."""
    return ctx.settings.section("audits", Audits)


def find_trained_on(ctx: Context, name: str, data: str) -> str | None:
    """Return the dataset that a model is trained on when `data` is audited; None if the name is not a model's."""
    entry = ctx.settings.models.get(ctx.model_name(name))
    if entry is None:
        return None
    return ctx.trained_on(entry) if entry.dataset else ctx.settings.train_on or data


def is_trainable(ctx: Context, name: str, data: str) -> bool:
    """Return whether a name is that of a model that can be trained: its dataset has training queries."""
    trained_on = find_trained_on(ctx, name, data)
    return trained_on is not None and may_have_split(ctx, trained_on, "train")


@checks_section("audits")
def check_audits(ctx: Context) -> None:
    """Refuse names in `audits` that do not exist, and a language model that does not."""
    _check_names(ctx)
    if judge := read_settings(ctx).llm_judge:
        check_llm(judge, "audits.llm_judge")


def _check_names(ctx: Context) -> None:
    """Refuse unknown names in `audits` that the configuration itself sets; names in the defaults may be absent."""
    entry = read_settings(ctx)
    written: dict[str, list[str]] = {}
    if "judges" in entry.model_fields_set:
        written["audits.judges"] = list(entry.judges)
    if entry.similar_queries.judges:
        written["audits.similar_queries.judges"] = list(entry.similar_queries.judges)
    if "systems" in entry.model_fields_set:
        parts: list[str] = []
        for system in entry.systems:
            parts += [part.partition("@")[0] for part in system.split("+")]
        written["audits.systems"] = [part for part in parts if not ctx.has_run(part)]

    if "retriever" in entry.model_fields_set and entry.retriever:
        _check_retriever(ctx, entry.retriever)
    for key, names in written.items():
        blocks = list_system_blocks() if key == "audits.systems" else _JUDGING_BLOCKS
        known = ctx.list_names(blocks)
        for name in names:
            if name not in known and not ctx.has_model(name):
                raise UserError(f"{key}: {name} is unknown{nearest(name, known)}")


def _check_retriever(ctx: Context, name: str) -> None:
    """Refuse a name that is neither a model nor a published encoder."""
    if not (ctx.untrained(name) or ctx.model_name(name) in ctx.settings.models):
        known = ctx.list_names(("models", "encoders"))
        raise UserError(f"audits.retriever: {name} is not a dual encoder{nearest(name, known)}")


def list_judges(ctx: Context, data: str, own: Sequence[str] | None = None) -> list[str]:
    """Return the audits' cross-encoders that the configuration has; models only if they can be trained.

    `own` are those of one audit; None: those of all audits.
    """
    chosen = read_settings(ctx).judges if own is None else own
    names = ctx.members(list(chosen))
    return [
        name for name in names if name in ctx.settings.rerankers or is_trainable(ctx, name, data)
    ]


def knows_probabilities(ctx: Context, name: str) -> bool:
    """Return whether a cross-encoder has learned absolute probabilities, and not only the order of lists.

    Published ones have, and those whose training taught it.
    """
    if name in ctx.settings.rerankers:
        return True
    train = ctx.settings.models[ctx.model_name(name)].train
    return has_learned_probabilities(json_of(train))


def find_retriever(ctx: Context, data: str) -> str | None:
    """Return the dual encoder that proposes pairs of queries: a published one, or one that can be trained."""
    name = read_settings(ctx).retriever
    if name and (ctx.untrained(name) or is_trainable(ctx, name, data)):
        return name
    return None


def list_systems(ctx: Context, data: str) -> list[str]:
    """Return the runs of `audits.systems` that are available; a notice names those in the file that are not.

    Raises:
        Unavailable: no run is available.
    """
    entry = read_settings(ctx)
    available = []
    lines = []
    for system in entry.systems:
        reason = _explain_absence(ctx, system, data)
        if reason is None:
            available.append(system)
        else:
            lines.append(f"audits.systems: {system} is left out: {reason}")
    if not available:
        raise Unavailable(f"{lines[0]}; without it there is none")
    if "systems" in entry.model_fields_set:
        ctx.notices |= {line: line for line in lines}
    return available


def _explain_absence(ctx: Context, system: str, data: str) -> str | None:
    """Return why a system is not available: it needs a model that cannot be trained; None if it is available."""
    for name in _list_parts(ctx, system):
        trained_on = find_trained_on(ctx, name, data)
        if trained_on is None:
            # only the default may name systems that a configuration lacks
            if not ctx.has_run(name):
                return f"{name} does not exist"
        elif not may_have_split(ctx, trained_on, "train"):
            return f"dataset {trained_on} has no training queries for {name}; name another with train_on"
    return None


def _list_parts(ctx: Context, system: str) -> Iterator[str]:
    """Yield the names in a system's expression, and the names that its entries, such as fusions, are made of."""
    for part in system.split("+"):
        name = part.partition("@")[0]
        yield name
        block = ctx.block_of(name, plans_run) or ctx.block_of(name, plans_reranking)
        if block is None:
            continue
        for key in names_in(ctx.settings.entries(block, Section)[name], f"{block}.{name}"):
            if key.reference.to in _MAKES_RUNS:
                for needed in key.names:
                    yield from _list_parts(ctx, needed)


def plan_similar_queries(ctx: Context, data: str) -> Stage:
    """Plan the audit of training queries that are similar to others."""
    entry = read_settings(ctx).similar_queries
    names = list_judges(ctx, data, entry.judges)
    where = "audits.similar_queries.judges"
    if entry.judges is None:
        names = [name for name in names if knows_probabilities(ctx, name)]
        where = "audits.judges"
    upstream = {"dataset": dataset(ctx, data), **judges(ctx, names, where, data, CROSS_PARTS)}

    known = splits(ctx, data) or {"train", "dev", "test"}
    tested = [split for split in known if find_originals(ctx, data, split) - LEARNED]
    others = sorted(tested, key=sort_key)
    retriever = find_retriever(ctx, data)
    if retriever:
        for split in ("train", *others):
            upstream[f"vectors.{split}"] = plan_encoding(
                ctx, "embeddings", retriever, "audits.retriever", data, split
            )
    threshold = entry.threshold
    if threshold is None:
        threshold = _SIMILAR_VECTORS if retriever and not names else _SIMILAR_PROBABILITY
    params = {**json_of(entry), "threshold": threshold, "splits": others, **ctx.scoring}
    return ctx.stage(_SIMILAR, data, "similar", params, upstream)


@plans_dataset("dissimilar")
def plan_dissimilar(ctx: Context, name: str, entry: Dissimilar) -> Stage:
    """Plan a dataset without the training queries that are similar to others."""
    similar = ctx.memo.get((_SIMILAR, entry.of))
    if similar is None:
        similar = plan_similar_queries(_open_audited(ctx, name, entry.of), entry.of)
    inputs = plan_references(ctx, entry, f"datasets.{name}", Scope(entry.of, "train"))
    return make_dataset(ctx, name, entry, inputs | {"similar": similar})


def _open_audited(ctx: Context, name: str, of: str) -> Context:
    """Return the configuration that audits the dataset which `name` is made of.

    If models would be trained on a dataset that depends on the audit, it is a configuration that searches and trains on
    the audited dataset itself.
    """
    settings = ctx.settings
    is_learned = name in _list_origins(ctx, settings.train_on or settings.dataset)
    is_made_of_itself = name in _list_origins(ctx, of)  # refused elsewhere, where the circle closes
    if is_made_of_itself or not is_learned:
        return ctx
    audited = Context(settings.model_copy(update={"dataset": of, "train_on": None}), ctx.stages)
    audited.datasets = ctx.datasets  # including datasets that planning has changed
    return audited


def _list_origins(ctx: Context, data: str) -> set[str]:
    """Return a dataset and all datasets that it is made of."""
    origins: set[str] = set()
    waiting = [data]
    while waiting:
        name = waiting.pop()
        if name in origins or name not in ctx.datasets:
            continue
        origins.add(name)
        for key in names_in(ctx.datasets[name], ""):
            if key.reference.to == "dataset":
                waiting += key.names
    return origins


def plan_pool(ctx: Context, data: str) -> Stage:
    """Return the audit of unlabelled passages that a judge finds relevant."""
    split = reported_split(ctx, data)
    upstream = {"dataset": dataset(ctx, data), **plan_runs(ctx, split, data)}
    names = list_judges(ctx, data)
    upstream |= judges(ctx, names, "audits.judges", data, CROSS_PARTS)
    calibrate = not all(knows_probabilities(ctx, name) for name in names)
    entry = read_settings(ctx).false_negatives
    params = {**json_of(entry), "split": split, "calibrate": calibrate, **ctx.scoring}
    params |= _read_left_out(ctx, data) | _fit_depth(ctx, "false_negatives", entry, split, data)
    return ctx.stage("false_negatives", data, f"unlabelled.{split}", params, upstream)


def _fit_depth(
    ctx: Context, name: str, entry: FalseNegativesAudit | LlmJudge, split: str, data: str
) -> Json:
    """Return how deep an audit looks into the runs: as deep as they are, unless its entry sets it."""
    deepest = run_depth(ctx, split, data)
    if entry.depth > deepest and "depth" in entry.model_fields_set:
        key = find_depth_key(ctx, split, data)
        runs = f"runs on {split} are {deepest} deep; raise depth.{key}"
        raise UserError(f"audits.{name}.depth is {entry.depth}, but {runs}")
    return {"depth": min(entry.depth, deepest)}


def _read_left_out(ctx: Context, data: str) -> Json:
    """Return what scores leave out of a dataset's runs, so that audits leave it out, too: a query's own passage."""
    return {"ignore_identical_ids": ctx.dataset_entry(data).ignore_identical_ids}


def plan_runs(ctx: Context, split: str, data: str) -> dict[str, Stage]:
    """Return the runs that are pooled, by role."""
    systems = list_systems(ctx, data)
    return {
        f"run.{i}": run(ctx, name, split, "audits.systems", data) for i, name in enumerate(systems)
    }


def plan_relabelling(ctx: Context, data: str) -> Stage:
    """Plan the qrels after the audit: the annotators' if there is a sheet, else those by the judges' verdict."""
    entry = read_settings(ctx).false_negatives
    pool = plan_pool(ctx, data)
    params: Json = {"split": reported_split(ctx, data), "threshold": entry.threshold}
    execution: Json = {}
    if entry.sheet is not None:
        path = Path(entry.sheet)
        if path.is_dir():
            params["fingerprint"] = fingerprint(path, list_decisive_files(path))
        elif path.is_file():
            # The whole file: corrections of verdicts change a sheet in its middle, and not its size.
            params["fingerprint"] = sha256_once(path)
        else:
            hint = "no such file; a folder of packages is begun by `tandem annotate`"
            raise UserError(f"audits.false_negatives.sheet is {entry.sheet}; {hint}")
        execution["path"] = entry.sheet
    return ctx.stage(
        "relabel", data, pool.name, params, {"dataset": dataset(ctx, data), "pool": pool}, execution
    )


def plan_llm_judge(ctx: Context, data: str) -> Stage:
    """Plan the grades of the language model `audits.llm_judge`, and the qrels with them.

    Raises:
        UserError: answers decide what is relevant, so that there are no judgements.
    """
    entry = read_settings(ctx).llm_judge
    at = "audits.llm_judge"
    if entry is None:
        raise UserError(f"{at}: names no language model")
    if ctx.dataset_entry(data).relevance != "qrels":
        raise UserError(
            f"{at}: answers decide what is relevant in {data}, nothing is judged there; leave it out"
        )
    split = reported_split(ctx, data)
    pool = plan_pool(ctx, data)
    params, execution = llm_stage(entry, at)
    params |= {"split": split, "seed": ctx.settings.seed, **_read_left_out(ctx, data)}
    params |= _fit_depth(ctx, "llm_judge", entry, split, data)
    upstream = {"dataset": dataset(ctx, data), "pool": pool, **plan_runs(ctx, split, data)}
    return ctx.stage("judge_llm", data, pool.name, params, upstream, execution)


def plan_noise(ctx: Context, data: str) -> Stage:
    """Plan the audit of duplicates, overlap between splits and unjudged results."""
    split = reported_split(ctx, data)
    is_unspaced = ctx.dataset_entry(data).language in UNSPACED
    shingle = {"unit": "characters", "size": 5} if is_unspaced else {"unit": "words", "size": 3}
    params = {
        **json_of(read_settings(ctx).noise),
        "shingle": shingle,
        "split": split,
        "seed": ctx.settings.seed,
        **_read_left_out(ctx, data),
    }
    upstream = {"dataset": dataset(ctx, data), **plan_runs(ctx, split, data)}
    return ctx.stage("noise", data, f"noise.{split}", params, upstream)


@restricts_score("corrected")
def take_corrected_labels(ctx: Context, data: str) -> Upstream:
    """Return the labels after the audit, in place of the dataset's.

    Raises:
        Unavailable: answers decide what is relevant, so that there are no judgements; or nobody corrects them.
    """
    if ctx.dataset_entry(data).relevance != "qrels":
        raise Unavailable(f"labels: corrected needs qrels, but dataset {data} has answers")
    if not (list_judges(ctx, data) or read_settings(ctx).false_negatives.sheet):
        raise Unavailable("labels: corrected needs audits.false_negatives.sheet or audits.judges")
    return {"labels": plan_relabelling(ctx, data)}


@restricts_score("pooled")
def take_pooled_queries(ctx: Context, data: str) -> Upstream:
    """Return the queries that the audit of unlabelled passages covered."""
    return {"subset": plan_pool(ctx, data)}


@restricts_score("similar")
def take_similar_queries(ctx: Context, data: str) -> Upstream:
    """Return the queries that have a similar training query."""
    return {"subset": plan_similar_queries(ctx, data)}


@restricts_score("others")
def take_other_queries(ctx: Context, data: str) -> Upstream:
    """Return the queries that have no similar training query."""
    return {"others": plan_similar_queries(ctx, data)}


@plans_variant("dissimilar")
def enter_dissimilar(ctx: Context, name: str, audited: Context, data: str) -> None:
    """Register the variant of a dataset without similar queries, as another configuration's audit identified them."""
    ctx.memo[_SIMILAR, data] = plan_similar_queries(audited, data)
    notes = notes_of(ctx.dataset_entry(data))
    ctx.datasets.setdefault(name, Dissimilar(source="dissimilar", of=data, **notes))


@plans_view("audits")
class AuditsView(View):
    """The page of the audits, and their section of the report."""

    rules = ("audits",)
    tables = ("audits",)
    writes = ("audits.html",)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.ctx = plan.planner.ctx
        self.settings = read_settings(self.ctx)

    def targets(self) -> dict[str, list[Check]]:
        """See `View.targets`."""
        return {"audits": [self.manifests]}

    def everything(self) -> list[Check]:
        """See `View.everything`."""
        return [self.stages]

    def report_part(self) -> ReportPart | None:
        """See `View.report_part`."""
        if not self.settings.in_report:
            return None
        stages = self.stages()
        return ReportPart([stage.manifest for stage in stages], stages)

    def downloads(self) -> list[Stage]:
        """Return the audits that published models search or judge in."""
        settings, published = self.settings, self.plan.settings.rerankers
        named = [*settings.systems, *settings.judges, *(settings.similar_queries.judges or ())]
        if settings.retriever:
            named.append(settings.retriever)
        parts = chain.from_iterable(_list_parts(self.ctx, system) for system in named)
        needs_some = any(name in published or self.ctx.untrained(name) for name in parts)
        return self.stages() if needs_some or settings.llm_judge else []

    def pool(self) -> Stage:
        """Return the audit of unlabelled passages; see `plan_pool`."""
        return plan_pool(self.ctx, self.plan.settings.dataset)

    def manifests(self) -> list[str]:
        """Return the manifests of `stages`."""
        return [stage.manifest for stage in self.stages()]

    def stages(self) -> list[Stage]:
        """Return every audit that the dataset allows, and the scores that show the effect of new labels."""
        ctx, data = self.ctx, self.plan.settings.dataset
        pool = self.pool()  # `noise` uses the same runs
        stages = [plan_noise(ctx, data), pool]
        if may_have_split(ctx, data, "train"):
            stages.append(plan_similar_queries(ctx, data))

        # For each system, the score as it is; with new labels also the scores that show their effect, on the pool's
        # queries.
        restrictions: list[Upstream] = [{}]
        labels = self._plan_labels()
        if labels:
            restrictions.append({"subset": pool})
        restrictions += [{"subset": pool, "labels": stage} for stage in labels]
        for system in list_systems(ctx, data):
            for restricted in restrictions:
                stages.append(
                    self.plan.planner.score(system, "audits.systems", data, restricted=restricted)
                )
        return stages

    def _plan_labels(self) -> list[Stage]:
        """Return the stages that make new labels; none if answers decide relevance: there are no labels to correct."""
        data = self.plan.settings.dataset
        labels = []
        is_labelled = self.ctx.dataset_entry(data).relevance == "qrels"
        if is_labelled and (list_judges(self.ctx, data) or self.settings.false_negatives.sheet):
            labels.append(plan_relabelling(self.ctx, data))
        if self.settings.llm_judge:
            labels.append(plan_llm_judge(self.ctx, data))
        return labels
