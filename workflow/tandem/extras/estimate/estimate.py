"""The command `estimate`: operations, device time, memory and disk of each stage, for a configuration and a machine."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

from tandem import ROOT
from tandem.cluster.progress import format_duration
from tandem.config.merging import Raw
from tandem.config.settings import Settings
from tandem.errors import UserError
from tandem.extras.byte_sizes import format_bytes
from tandem.extras.estimate.derived_sizes import unite_sizes
from tandem.extras.estimate.resources import (
    MODEL_WORK,
    Hardware,
    Setting,
    Volumes,
    cost,
    derived_size,
    measure_collection,
    params_of,
    read_finished,
)
from tandem.extras.estimate.stage_costs import find_split
from tandem.extras.language_models.options import LanguageModel
from tandem.extras.plan import FullPlan
from tandem.extras.targets import (
    Configuration,
    Configurations,
    choose_configuration,
    list_stages_of_all,
)
from tandem.plan.graph import Stage
from tandem.plan.sizes import shape_of
from tandem.plugins import line_of, plugins_behind
from tandem.stages import KINDS

TIME_BY_PART = {
    "models": "computing models",
    "core": "work without a model",
    "files": "writing files and their checksums",
    "start": "starting jobs",
}
_HEAD = ("stage", "training", "TFLOP", "device time", "wall", "memory", "disk", "took")


@dataclass(frozen=True)
class Cost:
    """The cost of one stage, or the sum over several."""

    operations: float  # floating-point operations of models
    seconds: float  # of device time, summed over devices
    # wall-clock seconds, by what they are spent on: the keys of `TIME_BY_PART`
    parts: Mapping[str, float]
    memory: float  # bytes at the peak of one process
    disk: float  # bytes
    measured: float | None = None  # seconds that the stage took, if it is finished
    steps: int | None = None  # of an optimizer

    @property
    def wall(self) -> float:
        """Return wall-clock seconds."""
        return sum(self.parts.values())

    @property
    def training(self) -> str:
        """Return `1,200 steps`; empty if nothing is trained."""
        return "" if self.steps is None else f"{self.steps:,} steps"


def estimate(
    *files: Path,
    configurations: Configurations = (),
    whole: Path | None = None,
    hardware: str = "",
) -> None:
    """Print a table of what a configuration would cost on a machine.

    Args:
        files: YAML files on top of config/config.yaml.
        whole: a whole configuration as JSON instead, in the Snakefile's form.
        hardware: an entry of config/hardware/; `execution.hardware` by default.
    Raises:
        UserError: `--whole` names no file of JSON, or there are several configurations.
    """
    if whole:
        config = _read_whole(whole)
    else:
        configuration = choose_configuration(configurations, files, "estimated")
        config = configuration.config()
    plan = FullPlan(config, ROOT)
    machine = Hardware.load_scaled(
        ROOT / "config/hardware", hardware or plan.settings.execution.hardware
    )
    print(render(plan, machine, None if whole else configuration), end="")


def _read_whole(path: Path) -> Raw:
    hint = "it is a whole configuration as JSON"
    try:
        config = json.loads(path.read_bytes())
    except OSError:
        raise UserError(f"--whole {path}: no such file; {hint}") from None
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise UserError(f"--whole {path}: holds no mapping in JSON; {hint}")
    return config


def new_setting(
    settings: Settings, hardware: Hardware, configuration: Configuration | None = None
) -> Setting:
    """Return the setting of a configuration's stages on a machine.

    If `configuration`, as the command line names it, is given, errors name the command that counts a dataset.

    The functions of the result raise a `UserError` for a dataset or an encoder of unknown size.
    """

    @cache
    def find_size(stage: Stage) -> Volumes:
        """Return the size of a dataset stage's collection; a derived dataset's follows from what it is made of."""
        size = measure_collection(stage, settings.datasets.get(stage.name))
        if size:
            return size
        parts = [part for role, part in stage.upstream.items() if role.startswith("of.")]
        if parts:
            return unite_sizes([find_size(part) for part in parts])
        source = stage.upstream.get("of") or stage.upstream.get("corpus")
        if source:
            beside = stage.upstream.get("queries")
            return find_derived_size(
                stage, find_size(source), find_size(beside) if beside else None
            )
        command = f"making {stage.manifest}"
        if configuration:
            command = f"`{configuration.snakemake([stage.manifest])}`"
        raise UserError(f"dataset {stage.name}: its size is not known; {command} counts it")

    return Setting(
        sizes=find_size,
        shape=lambda stage: shape_of(stage, settings),
        execution=settings.execution,
        activation_bytes=hardware.activation_bytes,
        held=hardware.held,
    )


def find_derived_size(stage: Stage, whole: Volumes, beside: Volumes | None = None) -> Volumes:
    """Return the size of a derived dataset: that of the dataset that it is made of, unless its source computes another.

    Args:
        whole: the size of the dataset that it is made of.
        beside: the size of the dataset whose queries it also has.
    """
    source = params_of(stage).source
    return derived_size[source](stage, whole, beside) if source in derived_size else whole


def estimate_stage(stage: Stage, setting: Setting, hardware: Hardware) -> Cost | None:
    """Return the cost of a stage; None for a kind that takes only a moment, or a plugin's kind without a cost function.

    A mistake in a plugin's cost function is a `UserError`.
    """
    if stage.kind not in cost:
        return None
    try:
        work = cost[stage.kind](stage, setting)
        computing = hardware.seconds(work)
        passing = sum(rows / hardware.rates[name] for name, rows in work.rows)
        before = sum(rows / hardware.rates[name] for name, rows in work.alone)
    except Exception as error:
        plugin = cost.plugin(stage.kind)
        if plugin is None:
            raise
        place = f"plugins: {plugin.path}{line_of(error, plugin.path)}: cost of {stage.kind}"
        raise UserError(f"{place}: {type(error).__name__}: {error}") from None

    kind, processes = KINDS[stage.kind], count_processes(stage, setting)
    disk = work.disk + work.run
    is_light = kind.gpu and not kind.uses_gpu(stage.upstream, {})  # without even importing torch
    parts = {
        "models": computing / processes,
        "core": before + passing / processes + work.run / hardware.rates["run"],
        "files": disk / hardware.rates["files"],
        "start": hardware.start["data" if is_light else kind.env],
    }
    manifest = read_finished(stage.folder)
    measured = manifest.seconds if manifest else None
    return Cost(work.operations, computing, parts, work.memory, disk, measured, work.steps)


def is_unknown(stage: Stage) -> bool:
    """Return whether a stage asks a language model, or is of a plugin's kind without a cost function.

    Tandem's own kinds without a cost function take only a moment.
    """
    if getattr(stage.params, "asked", None) is not None:  # a server's language model
        return True
    if stage.kind in cost:
        return False
    return isinstance(stage.params, LanguageModel) or bool(plugins_behind([stage.kind]))


def count_processes(stage: Stage, setting: Setting) -> int:
    """Return how many processes share a stage's work.

    They are a training's devices, or the shards that become jobs and have work.
    """
    kind, execution = KINDS[stage.kind], setting.execution
    if kind.ranks:
        return execution.devices * execution.nodes
    encodes_queries = getattr(params_of(stage), "side", None) == "queries"
    if encodes_queries or not kind.is_shared(stage):
        return 1
    if kind.part is None:
        return execution.shards
    match kind.part.unit:
        case "passages":
            rows = setting.size(stage).passages
        case "texts":
            rows = setting.size(stage).passages * params_of(stage).number
        case _:
            rows = setting.queries(stage, find_split(stage))
    return max(1, min(execution.shards, ceil(rows / kind.part.rows)))


def estimate_stages(
    stages: Iterable[Stage], setting: Setting, hardware: Hardware
) -> dict[Stage, Cost]:
    """Return the costs of some stages; stages without a known cost are left out."""
    costs = {}
    for stage in stages:
        stage_cost = estimate_stage(stage, setting, hardware)
        if stage_cost:
            costs[stage] = stage_cost
    return costs


def sum_costs(costs: Iterable[Cost]) -> Cost:
    """Return sums over stages, and the largest memory."""
    every = list(costs)
    return Cost(
        operations=sum(cost.operations for cost in every),
        seconds=sum(cost.seconds for cost in every),
        parts={part: sum(cost.parts[part] for cost in every) for part in TIME_BY_PART},
        memory=max((cost.memory for cost in every), default=0.0),
        disk=sum(cost.disk for cost in every),
    )


def describe_longest_part(costs: Mapping[Stage, Cost]) -> str:
    """Name the part that takes most of the time, the stage that takes most of that, and what would shorten it."""
    whole = sum_costs(costs.values())
    part = max(TIME_BY_PART, key=whole.parts.__getitem__)
    stage = max(costs, key=lambda stage: costs[stage].parts[part])
    kind, longest = KINDS[stage.kind], costs[stage].parts[part]

    change = "no other job can share it"
    if part == "files":
        change = "a faster disk below results/ helps, and `encode.dtype: int8`"
    elif part == "start":
        change = "a faster machine would wait as long"
    elif kind.ranks or kind.is_shared(stage):
        change = f"more `execution.{'devices' if kind.ranks else 'shards'}` share it"

    takes = f"{format_duration(whole.parts[part])} of {format_duration(whole.wall)}"
    most = f"{stage.kind} {stage.name} ({format_duration(longest)})"
    return f"{TIME_BY_PART[part]} takes {takes}, most in {most}: {change}"


def render(plan: FullPlan, hardware: Hardware, configuration: Configuration | None = None) -> str:
    """Return the table as Markdown, followed by the sizes and rates that it was calculated with."""
    setting = new_setting(plan.settings, hardware, configuration)
    stages = list_stages_of_all(plan)
    costs = estimate_stages(stages, setting, hardware)

    rows = [[f"{stage.kind} {stage.name}", *_format_cells(cost)] for stage, cost in costs.items()]
    rows.append(["**all**", *_format_cells(sum_costs(costs.values()))])
    rule = ["---", *["--:"] * (len(_HEAD) - 1)]
    table = [f"| {' | '.join(row)} |" for row in [list(_HEAD), rule, *rows]]

    sizes = {
        stage.dataset: setting.sizes(stage)
        for stage in stages
        if stage.declared.holds == "collection"
    }
    notes = [f"{name}: {_describe_size(size)}" for name, size in sizes.items()]
    notes += [
        f"{name}: how many queries {split} has is not known, and what they take is left out; "
        f"state it: datasets: {{{name}: {{counts: {{{split}: …}}}}}}"
        for name, split in find_uncounted_splits(costs, setting)
    ]
    mfu = ", ".join(f"{kind} {hardware.mfu[kind]:.2f}" for kind in MODEL_WORK)
    notes.append(f"{hardware.name}: {hardware.peak:g} TFLOP/s, of which models reach {mfu}")
    notes += [f"{what}: {text}" for what, text in hardware.origin.items()]
    unknown = sorted({stage.kind for stage in stages if is_unknown(stage)})
    if unknown:
        notes.append(f"no cost is known of: {', '.join(unknown)}")
    if costs:
        notes.append(describe_longest_part(costs))
    return "\n".join([*table, "", *notes, ""])


def find_uncounted_splits(stages: Iterable[Stage], setting: Setting) -> list[tuple[str, str]]:
    """Return each dataset with a split that a stage reads and of which neither a file nor the catalogue has a count."""
    uncounted = set[tuple[str, str]]()
    for stage in stages:
        split = getattr(params_of(stage), "split", None)
        if split and split not in setting.size(stage).queries:
            uncounted.add((stage.dataset, split))
    return sorted(uncounted)


def _format_cells(cost: Cost) -> list[str]:
    return [
        cost.training,
        f"{cost.operations / 1e12:,.1f}" if cost.operations else "",
        format_duration(cost.seconds) if cost.seconds else "",
        format_duration(cost.wall),
        format_bytes(int(cost.memory)),
        format_bytes(int(cost.disk)),
        "" if cost.measured is None else format_duration(cost.measured),
    ]


def _describe_size(volumes: Volumes) -> str:
    queries = ", ".join(f"{count:,} {split}" for split, count in volumes.queries.items())
    origin = "counted" if volumes.counted else "as the catalogue says, with typical lengths"
    return f"{volumes.passages:,} passages, queries: {queries} ({origin})"
