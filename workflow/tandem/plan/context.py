"""Hold what is planned so far for one configuration, and look up names of its entries.

Every function of planning takes a `Context`. The first look-up of a name plans its stage and all stages that this one
needs. So no list of needs exists, and a cycle of names is noticed where it closes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from tandem.cluster.progress import JOB_CONTEXTS
from tandem.config.base import Model, Section
from tandem.config.datasets import Dataset
from tandem.config.merging import of_searched
from tandem.config.models import COMPARING, ModelEntry
from tandem.config.references import excluded
from tandem.config.retrieval import Choosing, search_engine
from tandem.config.settings import Settings, Training, settings_model
from tandem.errors import NAME, UserError, nearest
from tandem.plan.graph import Stage, Stages
from tandem.plugins import plugins_behind
from tandem.registry import Registry
from tandem.stages import KINDS, Params
from tandem.stages.base import Json
from tandem.stages.data import DATASET_DOUBTS
from tandem.stages.evaluation import MEASURE_PROVIDERS

ALWAYS_THERE = ("bm25", "given", "encoder")  # runs that every configuration has
PARTS = {"dual": "retriever", "cross": "reranker"}  # what a part of a model is called in names
_SEARCHED = "searched"  # value of a model's `dataset`: the searched one, whatever `train_on` is
TRAINING = tuple(Training.model_fields)  # options of `execution` for how a training runs
Upstream = Mapping[str, Stage | None]  # role → stage; a role without a stage is left out
# block of the configuration, entry: ("models", "de_bm25neg"), ("datasets", "squad")
EntryKey = tuple[str, str]

# By representation: `(ctx, system, split, where, data, index) -> stage` that writes the run of a dual encoder; `index`
# is the name behind its `@`, None for exact search.
search: Registry[Callable[..., Stage]] = Registry(
    "search", "search", "plan", plans="ctx, system, split, where, data, index"
)
# By kind of stage, `(ctx, passages, name, data, params) -> stage` that builds the index of passages' vectors that an
# entry of `indexes` describes; `name` is the entry's, `params` are those of the search through it.
plans_index: Registry[Callable[..., Stage]] = Registry(
    "index", "plans_index", "plan", plans="ctx, passages, name, data, params"
)
# By block of the configuration, `fusions`, what its entries mean in a run's expression:
# `(ctx, name, split, where, data) -> stage` that writes the run of an entry; `where` is the key that names it.
plans_run: Registry[Callable[..., Stage]] = Registry(
    "run", "plans_run", "plan", plans="ctx, name, split, where, data"
)
# By block: `(ctx, reranked) -> stage` that re-ranks by an entry, which stands behind a `+`.
plans_reranking: Registry[Callable[..., Stage]] = Registry(
    "re-ranking", "plans_reranking", "plan", plans="ctx, reranked"
)
# By block: `(ctx, name) -> stage` of an entry that is named by keys, not by a run's expression: see `Context.entry`.
plans_entry: Registry[Callable[..., Stage]] = Registry(
    "entry", "plans_entry", "plan", plans="ctx, name"
)
# By source: `(ctx, name, entry) -> stage` of a dataset that is not made of other datasets only.
plans_dataset: Registry[Callable[..., Stage]] = Registry(
    "dataset", "plans_dataset", "plan", plans="ctx, name, entry"
)
# By source of an encoder that stages make: `(ctx, name, entry) -> stage` of the encoder (`plans_encoder`) and, if it
# starts from no other encoder, of the stage that has its tokenizer (`plans_tokenizer`).
plans_encoder: Registry[Callable[..., Stage]] = Registry(
    "encoder", "plans_encoder", "plan", plans="ctx, name, entry"
)
plans_tokenizer: Registry[Callable[..., Stage]] = Registry(
    "tokenizer", "plans_tokenizer", "plan", plans="ctx, name, entry"
)
# By sort of reference: `(ctx, name, scope) -> {role: stage}` of the entries that a key names, see `plan_references`.
plans_reference: Registry[Callable[..., dict[str, Stage]]] = Registry(
    "reference", "plans_reference", "plan"
)
# By key of `train` for an objective that a package adds: `(ctx, at, entry, data, params) -> (inputs, execution)`, the
# stages and options of `execution` that such a training needs in addition to the usual ones; `at` is the model's path.
plans_objective: Registry[Callable[..., tuple[dict[str, Stage], Json]]] = Registry(
    "objective", "plans_objective", "plan"
)
# By key of `train`, or a property of its class: `(ctx, name, data) -> {role: stage}` that the training of a model needs
# in addition to the usual ones if the key is set; `data` is the model's dataset.
plans_inputs: Registry[Callable[..., dict[str, Stage]]] = Registry("input", "plans_inputs", "plan")
# By key of `train` for trainings in several stages: `(ctx, name, scope, params, upstream, execution) -> stage` of the
# model; the arguments after the first two are those of a training in one piece.
plans_training: Registry[Callable[..., Stage]] = Registry(
    "training", "plans_training", "plan", plans="ctx, name, scope, params, upstream, execution"
)
# By name: the class of something that can be made in addition to tables and the report, see `tandem.plan.plan.View`.
plans_view: Registry[Any] = Registry("view", "plans_view", "plan")
# By a layout's word: `(ctx, dataset) -> {role: stage}` that a score takes in addition to a run: `labels` in the place
# of the dataset's, a `subset` of the queries, or the `others`.
restricts_score: Registry[Callable[..., Upstream]] = Registry(
    "restriction", "restricts_score", "plan"
)
# By a dataset's `relevance`, if judgements do not decide it (`answers`): `(ctx, ranking, split, dataset) -> stage` that
# writes which passages of a run count.
plans_matches: Registry[Callable[..., Stage]] = Registry(
    "relevance", "plans_matches", "plan", plans="ctx, ranking, split, dataset"
)
# By a layout's word: `(ctx, name, audited, dataset) -> None` that enters a variant of a dataset under a name; `audited`
# plans what the variant is made from.
plans_variant: Registry[Callable[..., None]] = Registry("variant", "plans_variant", "plan")
# By what is tuned, `bm25`: `(ctx, name, at, variant, params, upstream, dataset) -> Stage` that chooses k1 and b by
# searches like those of a variant of `sparse` whose path is `at`; `params` and `upstream` are those of its searches.
plans_tuning: Registry[Callable[..., Stage]] = Registry(
    "tuning", "plans_tuning", "plan", plans="ctx, name, at, variant, params, upstream, dataset"
)
# By engine of lexical search: `(ctx, variant, at, params, data) -> params` of the index of a variant of `sparse` whose
# path is `at`.
plans_lexical_index: Registry[Callable[..., Json]] = Registry(
    "index", "plans_lexical_index", "plan"
)
# By engine: `(variant, at) -> None` that refuses a variant which the engine cannot compute.
checks_variant: Registry[Callable[..., None]] = Registry("check", "checks_variant", "plan")
# By key of the configuration: `(ctx) -> None` that refuses a section with a mistake.
checks_section: Registry[Callable[..., None]] = Registry("check", "checks_section", "plan")
# By block: `(ctx, name) -> None` that refuses an entry with a mistake, whether it is needed or not.
checks_entry: Registry[Callable[..., None]] = Registry("check", "checks_entry", "plan")
# By key of `candidates`: `(at, entry) -> None` that refuses a model if the key is set in its lists and does not fit.
checks_lists: Registry[Callable[..., None]] = Registry("check", "checks_lists", "plan")
# By key of `train`: `(ctx, at, entry, data) -> None` that refuses a model if the key is set and does not fit; `at` is
# the model's path, `data` its dataset.
checks_training: Registry[Callable[..., None]] = Registry("check", "checks_training", "plan")
# By key: `(settings) -> lines` that name what is set in it and has no effect.
lists_unused_keys: Registry[Callable[[Settings], list[str]]] = Registry(
    "list of unused keys", "lists_unused_keys", "plan"
)


def list_blocks(registry: Registry[Any]) -> tuple[str, ...]:
    """Return the blocks of the configuration that a registry knows, in the order of the configuration's keys."""
    return _list_blocks(registry, settings_model())


@cache
def _list_blocks(registry: Registry[Any], settings: type[Settings]) -> tuple[str, ...]:
    return tuple(block for block in settings.model_fields if block in registry)


def list_choosing(settings: Settings) -> Iterator[tuple[str, str, Choosing]]:
    """Yield block, name and entry of the runs that are chosen, or may be chosen, by a split with labels."""
    for block in list_blocks(plans_run):
        for name, entry in settings.entries(block, Section).items():
            if isinstance(entry, Choosing):
                yield block, name, entry


def list_system_blocks() -> tuple[str, ...]:
    """Return the blocks whose entries are systems, or parts of a system's expression."""
    return ("models", *list_blocks(plans_run), *list_blocks(plans_reranking), "encoders")


def json_of(model: Model, *keys: str, without: tuple[str, ...] = ()) -> Json:
    """Return a section's fields, or some of them, as parameters of a stage, without those that become inputs."""
    exclude = excluded(type(model)) | dict.fromkeys(without, True)
    return model.model_dump(mode="json", include=set(keys) or None, exclude=exclude or None)


def strings(value: Any) -> Iterator[str]:
    """Yield every text in a value, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


def list_set_keys(value: Any) -> Iterator[str]:
    """Yield every key in a value, however deep, whose own value is neither null nor empty."""
    if isinstance(value, dict):
        for key, item in value.items():
            if item not in (None, (), [], {}):
                yield key
            yield from list_set_keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from list_set_keys(item)


@dataclass
class Context:
    """One configuration and its stages so far.

    Attributes:
        stages: where stages are registered; shared with other variants.
        datasets: its datasets, and those that planning itself adds.
        checkpoints: name → number → stage, for models that are trained in several stages; 0 is the start.
        memo: runs, token ids and so on that are planned already.
        splits: dataset → its splits, None where they are unknown.
        notices: dataset → a line to print about what planning itself changed in it; a line about a key of the
            configuration is its own key here.
    """

    settings: Settings
    stages: Stages
    datasets: dict[str, Dataset] = field(init=False)
    checkpoints: dict[str, dict[int, Stage]] = field(default_factory=dict)
    memo: dict[tuple[str, ...], Stage] = field(default_factory=dict)
    splits: dict[str, set[str] | None] = field(default_factory=dict)
    notices: dict[str, str] = field(default_factory=dict)
    _entries: dict[EntryKey, Stage | UserError] = field(default_factory=dict)
    _model_names: dict[str, str] = field(default_factory=dict)
    _opened: list[EntryKey] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.datasets = of_searched(self.settings.datasets, self.settings.dataset)

    def entry(self, block: str, name: str) -> Stage:
        """Return the stage of an entry, `("models", "de_bm25neg")`; plan it at the first look-up.

        Raises:
            UserError: the entry has a mistake (the error is the same at each look-up), or it needs itself.
        """
        key = (block, name)
        if key not in self._entries:
            with self.opening(block, name):
                try:
                    self._entries[key] = plans_entry[block](self, name)
                except UserError as error:
                    self._entries[key] = error
        planned = self._entries[key]
        if isinstance(planned, UserError):
            raise planned
        return planned

    @contextmanager
    def opening(self, block: str, name: str) -> Iterator[None]:
        """Mark an entry as being planned, so that an entry that needs itself is refused where the circle closes."""
        key = (block, name)
        if key in self._opened:
            circle = self._opened[self._opened.index(key) :]
            names = [entry for entry_block, entry in circle if entry_block == block]
            what = block
            if len(names) < len(circle):
                what = "entries"
                names = [f"{entry_block}.{entry}" for entry_block, entry in circle]
            raise UserError(f"{what} form a cycle: {' -> '.join([*names, names[0]])}")
        self._opened.append(key)
        try:
            yield
        finally:
            self._opened.pop()

    def planned_models(self) -> dict[str, Stage]:
        """Return name → stage of the models and re-rankers that are planned so far."""
        entries = {
            name: stage for (block, name), stage in self._entries.items() if block == "models"
        }
        return {name: stage for name, stage in entries.items() if isinstance(stage, Stage)}

    def stage(
        self,
        kind: str,
        dataset: str,
        name: str,
        params: Mapping[str, Any] | Params,
        upstream: Upstream,
        execution: Mapping[str, Any] | None = None,
    ) -> Stage:
        """Register a stage, or return an equal one that is registered already."""
        folder_name = re.sub(r"[^A-Za-z0-9_.+@-]", "_", name)  # as the Snakefile constrains a key
        inputs = {role: stage for role, stage in upstream.items() if stage is not None}
        stage = Stage(
            kind, dataset, folder_name, _type_params(kind, params), inputs, dict(execution or {})
        )
        if self.settings.plugins:
            stage = _add_plugins(stage)
        return self.stages.put(stage)

    def enter_dataset(self, name: str, entry: Dataset, purpose: str) -> None:
        """Add a dataset that planning makes for a purpose; refuse a name that another dataset has."""
        if self.datasets.setdefault(name, entry) != entry:
            raise UserError(
                f"datasets.{name} has the name of a dataset made for {purpose}; name it otherwise"
            )

    def execution(self, *keys: str) -> Json:
        """Return options of `execution` for a stage."""
        return {key: getattr(self.settings.execution, key) for key in keys}

    def seed(self, own: int | None) -> int:
        """Return an entry's own seed, else the configuration's."""
        return self.settings.seed if own is None else own

    @cached_property
    def scoring(self) -> Json:
        """Return how cross-encoders score pairs: in every stage as in re-ranking, so that all share the scores."""
        return json_of(self.settings.rerank, "precision", "batch_tokens")

    def dataset_entry(self, name: str, key: str = "dataset") -> Dataset:
        """Return a dataset's entry; `key` is the dotted key that names it."""
        if name not in self.datasets:
            raise UserError(f"{key}: {name} is unknown{nearest(name, list(self.datasets))}")
        require_name("datasets", name)
        return self.datasets[name]

    def has_model(self, name: str) -> bool:
        """Return whether a name means a trained model, a part or checkpoint of one, or a published re-ranker."""
        return self.model_name(name) in self.settings.models or name in self.settings.rerankers

    def check_model(
        self,
        name: str,
        where: str,
        objectives: tuple[str, ...] = (),
        also: Iterable[str] = (),
        more: Iterable[str] = (),
    ) -> None:
        """Refuse a name that is not a model's.

        Args:
            where: the key that refers to it.
            objectives: the objectives that it may have; (): any.
            also: other names that the key may have, for the message; iterated over only for that.
            more: the same, too many to be listed.
        """
        known = self._objectives
        if name not in known:
            fit = [
                model
                for model, objective in known.items()
                if not objectives or objective in objectives
            ]
            folder = (
                f"; the folder of that name is ./{name}" if name and Path(name).is_dir() else ""
            )
            raise UserError(
                f"{where}: {name} is not a model{folder or nearest(name, [*fit, *also], more)}"
            )
        if objectives and known[name] not in objectives:
            hint = (
                "; name an entry of comparisons that has it as by"
                if known[name] == COMPARING
                else ""
            )
            raise UserError(
                f"{where}: {name} is a {known[name]} model, needed is {' or '.join(objectives)}{hint}"
            )

    @cached_property
    def _objectives(self) -> dict[str, str]:
        """Map the names of models and re-rankers to what they learn."""
        known = dict.fromkeys(self.settings.rerankers, "cross")
        return known | {name: entry.sort for name, entry in self.settings.models.items()}

    def checkpoint(self, name: str) -> tuple[str, int] | None:
        """Return model and number of a checkpoint's name, `<model>.<number>`; None for any other name."""
        stem, _, number = name.rpartition(".")
        models = self.settings.models
        if name in models or stem not in models or not re.fullmatch(r"0|[1-9]\d*", number):
            return None
        train = models[stem].train
        if not train.checkpoints:
            return None
        # 0, the start, is a checkpoint where it may be the best
        first = 1 if train.choose == "last" else 0
        is_planned = first <= int(number) <= train.checkpoints
        return (stem, int(number)) if is_planned else None

    def model_name(self, part: str) -> str:
        """Return a model's name, without `.retriever`, `.reranker` or the number of a checkpoint."""
        if part not in self._model_names:
            self._model_names[part] = self._find_model_name(part)
        return self._model_names[part]

    def _find_model_name(self, part: str) -> str:
        if part in self.settings.models:
            return part
        if checkpoint := self.checkpoint(part):
            return checkpoint[0]
        stem = re.sub(r"\.(retriever|reranker)$", "", part)
        return stem if stem in self.settings.models else part

    def model(
        self,
        name: str,
        where: str,
        objectives: tuple[str, ...] = (),
        also: Iterable[str] = (),
        more: Iterable[str] = (),
    ) -> Stage:
        """Return the stage of a model or re-ranker, or of the checkpoint that is named (`<model>.<number>`).

        Args are those of `check_model`.

        Raises:
            UserError: there is no such model, it lacks the part of the first of `objectives`, or its other part is
                named.
        """
        checkpoint = self.checkpoint(name)
        stem = checkpoint[0] if checkpoint else self.model_name(name)
        self.check_model(stem, where, objectives, also, more)
        needed = PARTS.get(objectives[0]) if objectives else None
        if not checkpoint and needed and name not in (stem, f"{stem}.{needed}"):
            hint = f", or a list to re-rank: bm25+{name}" if needed == PARTS["dual"] else ""
            raise UserError(
                f"{where}: {name} is the other part of {stem}; needed is {stem}.{needed}{hint}"
            )
        # also while the model's own validations are planned
        if checkpoint and stem in self.checkpoints:
            return self.checkpoints[stem][checkpoint[1]]
        return self.entry("models", stem)

    def root(self, name: str, part: str) -> str:
        """Return the encoder or re-ranker that a model's part (`dual` or `cross`) descends from."""
        entry = self.settings.models.get(self.model_name(name))
        if entry is None:
            return self.settings.encoder if name == "encoder" else name
        return self.root(self.model_name(start_of(entry, part)), part)

    def trained_on(self, entry: ModelEntry) -> str:
        """Return the dataset that a model is trained on."""
        dataset = entry.dataset or self.settings.train_on or self.settings.dataset
        return self.settings.dataset if dataset == _SEARCHED else dataset

    def has_run(self, expression: str) -> bool:
        """Return whether the configuration has every name in a run's expression: `de_bm25neg@hnsw+ce_deneg`."""
        names = [part.partition("@")[0] for part in expression.split("+")]
        return all(self._has_name(name) for name in names)

    def _has_name(self, name: str) -> bool:
        if (
            name in ALWAYS_THERE
            or self.is_sparse(name)
            or self.untrained(name)
            or self.has_model(name)
        ):
            return True
        return any(name in getattr(self.settings, block) for block in list_system_blocks())

    def list_names(self, blocks: Iterable[str]) -> list[str]:
        """Return the names of all entries in some blocks of the configuration."""
        names: list[str] = []
        for block in blocks:
            names += getattr(self.settings, block)
        return names

    def block_of(self, name: str, registry: Registry[Any]) -> str | None:
        """Return the block that has an entry of a name, among those that a registry knows; None if none has."""
        blocks = list_blocks(registry)
        return next((block for block in blocks if name in getattr(self.settings, block)), None)

    def named_runs(self) -> list[str]:
        """Return the names of runs that are not a dual encoder's."""
        return ["bm25", "given", *self.list_names(list_blocks(plans_run))]

    def trained_model(self, run: str) -> str | None:
        """Return the first trained model of a run's expression: `m_d0` of `m_d0+m_c`; None where it has none."""
        for part in run.split("+"):
            name = self.model_name(part.partition("@")[0])
            if name in self.settings.models:
                return name
        return None

    def members(self, names: list[str]) -> list[str]:
        """Return names with each ensemble replaced by the cross-encoders that it is made of."""
        members: list[str] = []
        for name in names:
            ensemble = self.settings.ensembles.get(name)
            members += ensemble.of if ensemble else [name]
        return members

    def untrained(self, system: str) -> str | None:
        """Return the encoder that an expression names, used without training; None for any other system."""
        if system in self.settings.models:
            return None
        if system == "encoder":
            return self.settings.encoder
        is_encoder = system in self.settings.encoders or "/" in system  # a folder, or org/name
        return system if is_encoder else None

    def is_sparse(self, system: str) -> bool:
        """Return whether an expression names BM25 or a variant of it."""
        is_bm25 = system.partition(".")[0] == "bm25" or system in self.settings.sparse
        return is_bm25 and system not in self.settings.models


def _type_params(kind: str, params: Mapping[str, Any] | Params) -> Mapping[str, Any] | Params:
    """Return parameters as the model of a kind of stage, where the kind has one."""
    model = KINDS[kind].params
    if model is None or isinstance(params, Params):
        return params
    return model.model_validate(dict(params))


def _add_plugins(stage: Stage) -> Stage:
    """Return a stage with the plugins that it needs: its own labels in its parameters, all sources in `execution`.

    It reads what its inputs have made, and so needs their plugins, too; these are in its key by the inputs' digests.
    """
    # a measure does not name its provider
    providers = MEASURE_PROVIDERS if "measures" in stage.values else ()
    unnamed = chain(providers, *KINDS[stage.kind].additions)
    own = plugins_behind(
        chain([stage.kind], strings(stage.values), list_set_keys(stage.values), unnamed)
    )
    if own:
        params = {**stage.values, "plugins": [plugin.label for plugin in own]}
        stage = replace(stage, params=_type_params(stage.kind, params))
    # these decide no result, and are in no key
    engine = search_engine.plugin(stage.execution.get("engine", ""))
    beside = plugins_behind(chain(JOB_CONTEXTS, DATASET_DOUBTS))
    sources = [plugin.source for plugin in (*own, engine, *beside) if plugin]
    for upstream in stage.upstream.values():
        sources += upstream.execution.get("plugins", ())
    if sources:
        stage.execution["plugins"] = [*dict.fromkeys(sources)]
    return stage


def start_of(entry: ModelEntry, part: str) -> str:
    """Return what a model's part starts from: an encoder, a model or a re-ranker."""
    if isinstance(entry.init, str):
        return entry.init
    return entry.init.retriever if part == "dual" else entry.init.reranker


@cache  # names are looked up at every step
def require_name(block: str, name: str) -> None:
    """Refuse a name that cannot be part of a key."""
    if not NAME.fullmatch(name):
        raise UserError(f"{block}.{name}: a name is letters, digits, '_', '-' and '.'")


def check_name(ctx: Context, block: str, name: str) -> None:
    """Refuse an entry whose name cannot be part of a key or means another run, model or encoder."""
    require_name(block, name)
    blocks = [other for other in list_system_blocks() if other != block]
    others = [f"{other}.{name}" for other in blocks if name in getattr(ctx.settings, other)]
    stem = ctx.model_name(name)
    if stem != name:
        others.append(f"a part of models.{stem}")
    if name in ALWAYS_THERE or name.startswith("bm25."):
        others.append("a run that every configuration has")
    if others:
        raise UserError(f"{block}.{name} has the name of {others[0]}; name it otherwise")


def find_first_stage(run: Stage) -> Stage:
    """Return the run that re-rankings start from, which is as deep; the run itself if it re-ranks none."""
    while "run" in run.upstream:
        run = run.upstream["run"]
    return run


def require_depth(run: Stage, deepest: int, where: str) -> None:
    """Refuse to look deeper into a run than it goes, if the run, such as a fusion, has a depth of its own."""
    run = find_first_stage(run)
    key = run.declared.scoring.depth_key
    if not key:
        return
    depth = run.values["depth"]
    if deepest > depth:
        raise_key = key.format(name=run.system)
        raise UserError(
            f"{where} is {deepest}, but {run.system} goes only {depth} deep; raise {raise_key}"
        )
