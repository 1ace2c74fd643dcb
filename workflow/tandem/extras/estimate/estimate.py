"""The command `estimate`: operations, device time, memory and disk of each stage, for a configuration and a machine."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from pathlib import Path

from tandem import ROOT
from tandem.cluster.progress import format_duration
from tandem.config.language_models import LanguageModel
from tandem.config.merging import Raw, gathered
from tandem.config.settings import Settings
from tandem.data.fetch import format_bytes
from tandem.errors import UserError
from tandem.extras.estimate import resources
from tandem.extras.estimate.resources import WORK, Hardware, Setting, Volumes, cost, params_of
from tandem.extras.estimate.stage_costs import split_of
from tandem.extras.plan import FullPlan
from tandem.plan.graph import Stage, upstream_first
from tandem.plan.sizes import shape_of
from tandem.registry import line_of, plugins_behind
from tandem.stages import KINDS

BINDING = {
    "models": "computing models",
    "core": "work without a model",
    "files": "writing files and their checksums",
    "start": "starting jobs",
}
HEAD = ("stage", "training", "TFLOP", "device time", "wall", "memory", "disk", "took")


@dataclass(frozen=True)
class Cost:
    """What one stage costs, or several together."""

    operations: float  # floating-point operations of models
    seconds: float  # of device time, the devices' together
    parts: Mapping[str, float]  # seconds by the clock, by what passes them: the keys of `BINDING`
    memory: float  # bytes at the peak of one process
    disk: float  # bytes
    measured: float | None = None  # seconds it took, where it is finished
    steps: int | None = None  # of an optimizer

    @property
    def wall(self) -> float:
        """Seconds by the clock."""
        return sum(self.parts.values())

    @property
    def training(self) -> str:
        """`1,200 steps`; empty of what trains nothing."""
        return "" if self.steps is None else f"{self.steps:,} steps"


def estimate(*files: Path, config: Path | None = None, hardware: str = "") -> None:
    """Print a table of what a configuration would cost on a machine.

    Args:
        files: YAML files laid upon config/config.yaml.
        config: a whole configuration as JSON instead, as the Snakefile has it.
        hardware: an entry of config/hardware/; `execution.hardware` by default.
    Raises:
        UserError: `--config` names no file of JSON.
    """
    plan = FullPlan(_whole(config) if config else gathered(files, ROOT), ROOT)
    machine = Hardware.load_scaled(ROOT / "config/hardware", hardware or plan.settings.execution.hardware)
    print(render(plan, machine), end="")


def _whole(path: Path) -> Raw:
    hint = "it is a whole configuration as JSON; single keys stand in YAML files"
    try:
        config = json.loads(path.read_bytes())
    except OSError:
        raise UserError(f"--config {path}: no such file; {hint}") from None
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise UserError(f"--config {path}: holds no mapping in JSON; {hint}")
    return config


def new_setting(settings: Settings, hardware: Hardware) -> Setting:
    """The setting of a configuration's stages on a machine.

    The functions of the result raise a UserError where a dataset's or an encoder's size is not known.
    """

    @cache
    def sizes(stage: Stage) -> Volumes:
        """The collection of a dataset stage; a derived one's follows from what it is made of."""
        if size := resources.volumes(stage, settings.datasets.get(stage.name)):
            return size
        if whole := stage.upstream.get("of") or stage.upstream.get("corpus"):
            return derived(stage, sizes(whole))
        raise UserError(f"dataset {stage.name}: its size is not known; `snakemake {stage.manifest}` counts it")

    memory = (hardware.activation_bytes, hardware.held)
    return Setting(sizes, lambda stage: shape_of(stage, settings), settings.execution, *memory)


def derived(stage: Stage, whole: Volumes) -> Volumes:
    """The size of a derived dataset."""
    params, every = params_of(stage), whole.queries.get("dev", 0)
    if params.source == "reduced":  # for validation: at most what a query brings, times its queries
        queries = min(every, params.dev_queries or every)
        brought = queries * (params.depth + params.others + 1)
        return replace(whole, passages=min(whole.passages, brought), queries={"dev": queries})
    if params.source == "windows":  # as many as documents of the mean length have
        tokens = whole.lengths["passage"]
        units = tokens / (resources.TOKENS_PER_WORD if params.unit == "words" else 1.0)
        count = 1 + max(0.0, units - params.length) / params.stride
        passages = round(whole.passages * min(count, params.most or count))
        lengths = whole.lengths | {"passage": tokens * min(1.0, params.length / units)}
        return replace(whole, passages=passages, lengths=lengths, counted=False)
    if params.source == "expanded":
        more = params.number * whole.lengths["query"] * (1.0 - (stage.values.get("drop_share") or 0.0))
        return replace(whole, lengths=whole.lengths | {"passage": whole.lengths["passage"] + more}, counted=False)
    if params.source == "generated_queries":
        read = params_of(stage.upstream["generated"]).passages or whole.passages
        count = min(whole.passages, read) * params.number
        count = min(count, stage.values.get("best") or count)
        return replace(whole, queries={"train": count}, positives={"train": count}, counted=False)
    return whole


def stage_cost(stage: Stage, setting: Setting, hardware: Hardware) -> Cost | None:
    """The cost of a stage; None for a kind that takes only a moment, or a plugin's kind without a cost function.

    A mistake in a plugin's cost function is a `UserError`.
    """
    if stage.kind not in cost:
        return None
    try:
        work = cost[stage.kind](stage, setting)
        computing = hardware.seconds(work.kind, work.operations) if work.kind else 0.0
        passing, before = (sum(rows / hardware.rates[name] for name, rows in part) for part in (work.rows, work.alone))
    except Exception as error:
        if (plugin := cost.plugin(stage.kind)) is None:
            raise
        where = f"plugins: {plugin.path}{line_of(error, plugin.path)}: cost of {stage.kind}"
        raise UserError(f"{where}: {type(error).__name__}: {error}") from None
    kind, shared, disk = KINDS[stage.kind], processes(stage, setting), work.disk + work.run
    light = kind.gpu and not kind.uses_gpu(stage.upstream)  # it does not even import torch
    parts = {
        "models": computing / shared,
        "core": before + passing / shared + work.run / hardware.rates["run"],
        "files": disk / hardware.rates["files"],
        "start": hardware.start["data" if light else kind.env],
    }
    manifest = resources.finished(stage.folder)
    measured = float(manifest["seconds"]) if manifest else None
    return Cost(work.operations, computing, parts, work.memory, disk, measured, work.steps)


def is_unknown(stage: Stage) -> bool:
    """Whether a stage asks a language model, or is of a plugin's kind without a cost function; others take a moment."""
    if getattr(stage.params, "asked", None) is not None:  # a language model behind a server
        return True
    return stage.kind not in cost and (isinstance(stage.params, LanguageModel) or bool(plugins_behind([stage.kind])))


def processes(stage: Stage, setting: Setting) -> int:
    """How many processes share a stage's work: a training's devices, or the shards that become jobs and have a part."""
    kind, execution = KINDS[stage.kind], setting.execution
    if kind.ranks:
        return execution.devices * execution.nodes
    queries = getattr(params_of(stage), "side", None) == "queries"
    if queries or not kind.is_shared(stage):
        return 1
    if kind.part is None:
        return execution.shards
    match kind.part.unit:
        case "passages":
            rows = setting.size(stage).passages
        case "texts":
            rows = setting.size(stage).passages * params_of(stage).number
        case _:
            rows = setting.queries(stage, split_of(stage))
    return max(1, min(execution.shards, ceil(rows / kind.part.rows)))


def costs_of(stages: Iterable[Stage], setting: Setting, hardware: Hardware) -> dict[Stage, Cost]:
    """The costs of some stages; stages without a known cost are left out."""
    return {stage: own for stage in stages if (own := stage_cost(stage, setting, hardware))}


def total(costs: Iterable[Cost]) -> Cost:
    """Sums over stages; the largest memory."""
    every = list(costs)
    operations, seconds, disk = (sum(getattr(own, key) for own in every) for key in ("operations", "seconds", "disk"))
    parts = {part: sum(own.parts[part] for own in every) for part in BINDING}
    return Cost(operations, seconds, parts, max((own.memory for own in every), default=0.0), disk)


def binding(costs: Mapping[Stage, Cost]) -> str:
    """Say what takes most of the time, which stage takes most of that, and what would shorten it."""
    whole = total(costs.values())
    part = max(BINDING, key=whole.parts.__getitem__)
    stage = max(costs, key=lambda stage: costs[stage].parts[part])
    kind, most = KINDS[stage.kind], costs[stage].parts[part]
    change = "no other job can share it"
    if part == "files":
        change = "a faster disk below results/ helps, and `encode.dtype: int8`"
    elif part == "start":
        change = "a faster machine would wait as long"
    elif kind.ranks or kind.is_shared(stage):
        change = f"more `execution.{'devices' if kind.ranks else 'shards'}` share it"
    return (
        f"{BINDING[part]} takes {format_duration(whole.parts[part])} of {format_duration(whole.wall)}, most in "
        f"{stage.kind} {stage.name} ({format_duration(most)}): {change}"
    )


def stages_of_tables(plan: FullPlan) -> list[Stage]:
    """The stages that the tables of `rule all` need, upstream first."""
    plan.tables.files()
    return upstream_first(plan.tables.requested_scores())


def render(plan: FullPlan, hardware: Hardware) -> str:
    """The table as Markdown, below it the sizes and rates that it is calculated with."""
    setting, stages = new_setting(plan.settings, hardware), stages_of_tables(plan)
    costs = costs_of(stages, setting, hardware)
    rows = [[f"{stage.kind} {stage.name}", *_cells(own)] for stage, own in costs.items()]
    rows.append(["**all**", *_cells(total(costs.values()))])
    lines = [f"| {' | '.join(row)} |" for row in [list(HEAD), ["---", *["--:"] * (len(HEAD) - 1)], *rows]]
    sizes = {stage.dataset: setting.sizes(stage) for stage in stages if stage.declared.holds == "collection"}
    notes = [f"{name}: {_size(size)}" for name, size in sizes.items()]
    mfu = ", ".join(f"{kind} {hardware.mfu[kind]:.2f}" for kind in WORK)
    notes.append(f"{hardware.name}: {hardware.peak:g} TFLOP/s, of which models reach {mfu}")
    notes += [f"{what}: {text}" for what, text in hardware.origin.items()]
    if unknown := sorted({stage.kind for stage in stages if is_unknown(stage)}):
        notes.append(f"no cost is known of: {', '.join(unknown)}")
    notes += [binding(costs)] if costs else []
    return "\n".join([*lines, "", *notes, ""])


def _cells(total: Cost) -> list[str]:
    operations = f"{total.operations / 1e12:,.1f}" if total.operations else ""
    device = format_duration(total.seconds) if total.seconds else ""
    took = "" if total.measured is None else format_duration(total.measured)
    sizes = (format_bytes(int(size)) for size in (total.memory, total.disk))
    return [total.training, operations, device, format_duration(total.wall), *sizes, took]


def _size(volume: Volumes) -> str:
    queries = ", ".join(f"{count:,} {split}" for split, count in volume.queries.items())
    origin = "counted" if volume.counted else "as the catalogue says, with typical lengths"
    return f"{volume.passages:,} passages, queries: {queries} ({origin})"
