"""Planning of one configuration: each stage that is asked for, after all stages that it needs.

The names that a run, model or dataset needs are read off the configuration first (`run_needs`, …) and planned in that
order, so that the functions below only look them up.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tandem.config.datasets import Dissimilar, Group, Reduced
from tandem.config.encoders import PretrainedEncoder
from tandem.config.loading import Variants
from tandem.config.merging import Raw
from tandem.config.models import JointModel
from tandem.config.settings import Settings
from tandem.errors import UserError
from tandem.plan import audits, datasets, encoders, models, reported, runs, validation
from tandem.plan.candidates import is_source
from tandem.plan.context import Context, Name, Upstream, Validated
from tandem.plan.graph import Stage, Stages


class Planner:
    """One configuration's models and runs; stages it shares with earlier ones are found by digest."""

    def __init__(self, settings: Settings, stages: Stages) -> None:
        self.settings, self.ctx = settings, Context(settings, stages)
        self._done: set[Name] = set()
        datasets.draw_missing_dev(self.ctx)

    def model(self, name: str, where: str, objectives: tuple[str, ...] = ()) -> Stage:
        """The stage that trains a model; `where` names the key that refers to it."""
        self.plan_models([name])
        return self.ctx.model(name, where, objectives)

    def dataset(self, name: str | None = None) -> Stage:
        """The stage that makes a dataset: the configuration's, unless named."""
        name = name or self.settings.dataset
        self.prepare([("datasets", name)])
        return datasets.dataset(self.ctx, name)

    def encoder(self, name: str) -> Stage:
        """The stage of a starting encoder."""
        self.prepare(encoder_needs(self.ctx, name))
        return encoders.encoder(self.ctx, name)

    def run(self, system: str, split: str, where: str, dataset: str | None = None) -> Stage:
        """The stage that writes a system's run, on the configuration's dataset unless one is named; see `runs`."""
        dataset = dataset or self.settings.dataset
        self.prepare(run_needs(self.ctx, system, dataset))
        return runs.run(self.ctx, system, split, where, dataset)

    def score(
        self,
        system: str,
        where: str,
        dataset: str | None = None,
        by: list[str] | None = None,
        restricted: Upstream | None = None,
    ) -> Stage:
        """The stage that scores a system's run by the reported measures, or by others; see `runs.score`."""
        dataset = dataset or self.settings.dataset
        entry = self.ctx.dataset_entry(dataset)
        for name in entry.of if isinstance(entry, Group) else (dataset,):
            self.prepare(run_needs(self.ctx, system, name))
        return runs.score(self.ctx, system, where, dataset, by, restricted=restricted)

    def split(self, dataset: str | None = None) -> str:
        """The split whose scores are reported."""
        return reported.reported_split(self.ctx, dataset or self.settings.dataset)

    def audit(self, kind: str, dataset: str) -> Stage:
        """An audit of a dataset, or the labels that follow from one, by the kind of its stage; see `audits`."""
        self.prepare([("datasets", dataset), *audit_needs(self.ctx, dataset)])
        if kind != "similar_queries":  # the others look at runs
            for system in audits.audited_systems(self.ctx, dataset):
                self.prepare(run_needs(self.ctx, system, dataset))
        return audits.AUDITS[kind](self.ctx, dataset)

    def full_value(self, validated: Validated) -> Stage:
        """The stage that measures a checkpoint on the full corpus; see `validation.full_value`."""
        data = self.ctx.trained_on(self.settings.models[validated.model])
        self.prepare(run_needs(self.ctx, validation.reference(self.ctx, validated.model), data))
        self.prepare([("datasets", validation.reduced_dataset(self.ctx, validated.model))])
        return validation.full_value(self.ctx, validated)

    def train_without_similar(self, dataset: str, name: str, similar: Stage) -> None:
        """Enter the variant of a dataset without similar queries, as another configuration's audit found them."""
        notes = datasets.notes_of(self.ctx.dataset_entry(dataset))
        self.ctx.datasets.setdefault(name, Dissimilar(source="dissimilar", of=dataset, **notes))
        self.ctx.similar[dataset] = similar

    def prepare(self, needed: Iterable[Name]) -> None:
        """Plan models and derived datasets after all that they need; a mistake is raised where they are looked up."""
        for name in needed:
            self._plan(name, ())

    def plan_models(self, names: Iterable[str]) -> None:
        """Plan models; a mistake is raised where they are looked up."""
        self.prepare([("models", self.ctx.model_name(name)) for name in names])

    def _plan(self, name: Name, opened: tuple[Name, ...]) -> None:
        block, entry = name
        if name in opened:
            names = [other for at, other in opened[opened.index(name) :] if at == block]
            self.ctx.failed[name] = UserError(f"{block} form a cycle: {' -> '.join([*names, entry])}")
            return
        known = self.ctx.datasets if block == "datasets" else {*self.settings.models, *self.settings.rerankers}
        if name in self._done or entry not in known:
            return
        try:
            for needed in (model_needs if block == "models" else dataset_needs)(self.ctx, entry):
                self._plan(needed, (*opened, name))
            if block == "models":
                plan = models.plan_model if entry in self.settings.models else encoders.plan_reranker
                self.ctx.models[entry] = plan(self.ctx, entry)
            else:
                self._plan_dataset(entry)
            self.ctx.failed.pop(name, None)
        except UserError as error:
            self.ctx.failed[name] = error
        self._done.add(name)

    def _plan_dataset(self, name: str) -> None:
        match spec := self.ctx.datasets[name]:
            case Dissimilar():
                self.ctx.derived[name] = audits.plan_dissimilar(self.ctx, name, spec.of)
            case Reduced():
                self.ctx.derived[name] = validation.plan_reduced(self.ctx, name, spec)
            case _:
                datasets.dataset(self.ctx, name)


class Planners:
    """One configuration's planner and those of its variants; equal stages are one.

    Raises:
        UserError: one line per mistake in the configuration itself.
    """

    def __init__(self, raw: Raw, root: Path) -> None:
        self.variants, self.stages = Variants(raw, root), Stages()
        self._planners: dict[int, Planner] = {}
        self.base = self.of({})

    def of(self, overrides: Mapping[str, object]) -> Planner:
        """The planner of the configuration with dotted paths overridden, as `Variants.settings` has it."""
        settings = self.variants.settings(overrides)  # equal overrides give the same object
        if id(settings) not in self._planners:
            self._planners[id(settings)] = Planner(settings, self.stages)
        return self._planners[id(settings)]

    def notices(self, stages: Iterable[Stage]) -> list[str]:
        """A line for each change that planning made to a dataset of this configuration or of a needed variant."""
        drawn = {stage.dataset for stage in stages if stage.kind == "dataset" and stage.values.get("dev_from_train")}
        lines = [
            line
            for planner in self._planners.values()
            for name, line in planner.ctx.notices.items()
            if planner is self.base or name in drawn
        ]
        return list(dict.fromkeys(lines))


def dataset_needs(ctx: Context, name: str) -> Iterator[Name]:
    """The models and datasets that one is made from, in the order of their planning; unknown names are left out."""
    entry = ctx.datasets[name]
    yield from (("datasets", of) for _, of in datasets.parts(entry))
    match entry:
        case Group():
            yield from (("datasets", of) for of in entry.of)
        case Reduced():
            yield from run_needs(ctx, entry.from_, entry.of)
        case Dissimilar() if entry.of in ctx.datasets and entry.of not in ctx.similar:
            yield from audit_needs(ctx, entry.of)


def audit_needs(ctx: Context, data: str) -> Iterator[Name]:
    """The judges and the retriever of a dataset's audits."""
    own = audits.audit_judges(ctx, data, ctx.settings.audits.similar_queries.judges)
    for name in (*audits.audit_judges(ctx, data), *own, audits.audit_retriever(ctx, data)):
        if name:
            yield "models", ctx.model_name(name)


def encoder_needs(ctx: Context, name: str) -> Iterator[Name]:
    """The datasets that a starting encoder, and those it starts from, are pre-trained on."""
    opened: list[str] = []
    while isinstance(entry := ctx.settings.encoders.get(name), PretrainedEncoder) and name not in opened:
        opened.append(name)
        yield "datasets", entry.dataset or ctx.settings.dataset
        name = entry.start or ""


def model_needs(ctx: Context, name: str) -> Iterator[Name]:
    """What a model starts from, is trained on, judged by, taught by and validated on; a re-ranker needs nothing."""
    if name not in ctx.settings.models:
        return
    entry = ctx.settings.models[name]
    data = ctx.trained_on(entry)
    yield "datasets", data
    starts = [entry.init.retriever, entry.init.reranker] if isinstance(entry, JointModel) else [entry.init]
    for start in (*starts, "encoder"):
        yield "models", ctx.model_name(start)
        yield from encoder_needs(ctx, ctx.settings.encoder if start == "encoder" else start)
    for lists in (entry.candidates, *entry.candidates.also):
        if not is_source(lists.from_):
            yield from run_needs(ctx, lists.from_, data)
        yield from (("models", ctx.model_name(judge)) for judge in ctx.members(list(lists.judges)))
    if distil := getattr(entry.train, "distil", None):
        for teacher in (*distil.from_, *([distil.in_batch.from_] if distil.in_batch else [])):
            yield from run_needs(ctx, teacher, data)
    if topics := getattr(entry.train, "topics", None):
        yield from run_needs(ctx, topics.by, data)
    if validation.validates_in_process(ctx, name):
        yield from run_needs(ctx, validation.reference(ctx, name), data)
    if validation.is_validated(ctx, name):
        yield "datasets", validation.reduced_dataset(ctx, name)


def run_needs(ctx: Context, system: str, data: str, opened: tuple[str, ...] = ()) -> Iterator[Name]:
    """The models behind a run, and the datasets that are searched."""
    yield "datasets", data
    settings = ctx.settings
    for part in system.split("+"):
        name = part.partition("@")[0]
        if part in opened or part in settings.scorers or part in settings.llm_rerankers or ctx.is_sparse(part):
            continue
        if entry := settings.aggregations.get(part):
            yield from run_needs(ctx, entry.of, entry.windows if entry.by is None else data, (*opened, part))
            yield "datasets", entry.windows
            yield from (("models", ctx.model_name(judge)) for judge in ctx.members([entry.by] if entry.by else []))
        elif imported := settings.runs.get(part):
            if imported.of:
                yield from run_needs(ctx, imported.of, data, (*opened, part))
        elif combined := settings.fusions.get(part) or settings.pipelines.get(part):
            for of in combined.of:
                yield from run_needs(ctx, of, data, (*opened, part))
        elif encoder := ctx.untrained(name):
            yield from encoder_needs(ctx, encoder)
        else:
            yield from (("models", ctx.model_name(member)) for member in ctx.members([name]))
