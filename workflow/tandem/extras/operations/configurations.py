"""Configurations as a command line names them, their plans, and the stages that they need."""

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import yaml
from cyclopts import Parameter

from tandem import ROOT
from tandem.config.loading import LOADER, gathered
from tandem.config.merging import Raw, merged
from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.plan.graph import Stage, upstream_first
from tandem.plan.plan import views_folder

# Large, and needed only until runs are made from them.
LARGE = ("embeddings", "token_vectors", "term_weights", "index", "impacts", "seismic")


@dataclass
class Configuration:
    """A configuration as Snakemake gets it: YAML files laid upon config/config.yaml, then `key=value` words."""

    files: list[Path] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def config(self) -> Raw:
        """The configuration as Snakemake would gather it; a `UserError` for a file or value that cannot be read."""
        config = gathered(self.files, ROOT)
        for word in self.values:
            key, _, text = word.partition("=")
            try:
                config = merged(config, {key: yaml.load(text, LOADER)})
            except yaml.YAMLError:
                raise UserError(f"--config {word}: {text} is not valid YAML") from None
        return config

    def plan(self) -> FullPlan:
        """The configuration's plan: the Snakefile's own, so that stages have the names they were built under."""
        return FullPlan(self.config(), ROOT, views_folder(self.files))

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return " ".join([*map(str, self.files), *self.values]) or "config/config.yaml"

    def snakemake(self, targets: Iterable[str], system: str = "") -> str:
        """The command that builds files below results/; `system` is one that no table of the configuration names."""
        line = ["snakemake", "--cores", str(os.cpu_count() or 1), *targets]
        line += ["--configfile", *map(str, self.files)] if self.files else []
        values = [*self.values, *([f"systems=[{system}]"] if system else [])]
        return shlex.join([*line, *(["--config", *values] if values else [])])


Configurations = Annotated[
    Sequence[Configuration],
    Parameter(
        name=("--configfile", "--config"),
        help="`--configfile A.yaml [B.yaml …]` begins a configuration, to which `--config key=value …` belongs; several"
        " are allowed. Default: config/config.yaml",
        converter=lambda *_: (),  # `read_configurations` has taken these words
        n_tokens=1,
        accepts_keys=False,
        negative="",
        show_default=False,
    ),
]


def read_configurations(words: list[str]) -> tuple[list[Configuration], list[str]]:
    """Configurations on a command line, as `Configurations` describes them, and the other words."""
    configurations, rest, target = list[Configuration](), list[str](), ""
    for word in words:
        if word in ("--configfile", "--configfiles"):
            configurations.append(Configuration())
            target = "files"
        elif word == "--config":
            if not configurations or configurations[-1].values:
                configurations.append(Configuration())
            target = "values"
        elif target == "files" and word.endswith((".yaml", ".yml", ".json")):
            configurations[-1].files.append(Path(word))
        elif target == "values" and "=" in word and not word.startswith("--"):
            configurations[-1].values.append(word)
        elif target == "values" and not configurations[-1].values:
            raise UserError(f"--config {word}: allowed: key=value, such as seed=7")
        else:
            rest.append(word)
            target = ""
    return configurations or [Configuration()], rest


def split_files(words: Iterable[str]) -> tuple[list[str], list[Path]]:
    """Names, and YAML files. Several words in one that end in `.yaml` are a query, unless there is such a file."""
    names, files = list[str](), list[Path]()
    for word in words:
        is_file = word.endswith((".yaml", ".yml")) and (len(word.split()) == 1 or Path(word).is_file())
        if is_file:
            files.append(Path(word))
        else:
            names.append(word)
    return names, files


def full_plan(configuration: Configuration) -> FullPlan:
    """A configuration's plan with everything that can be requested by name: tables, sweeps, audits and so on."""
    plan = configuration.plan()
    plan.tables.files()  # a table that cannot be planned today, its data being away, would leave out what it needs
    plan.sweeps()
    plan.by_name()
    optional: list[Callable[[], object]] = [partial(plan.counted, name) for name in plan.statistics]
    for plan_stages in (plan.validations, *optional):
        with suppress(UserError):
            plan_stages()
    return plan


def stages_of_all(plan: FullPlan) -> list[Stage]:
    """The stages of `rule all`: those behind the wanted tables, sweeps and what the report shows; inputs first."""
    plan.tables.files()
    targets = plan.tables.wanted_scores()
    targets += [point.stage for name in plan.swept.requested for point in plan.swept[name].scored]
    if plan.settings.audits.in_report:
        targets += plan.audit_stages()
    targets += [plan.planner.run(system, plan.split, "systems") for system in plan.settings.systems]
    return upstream_first(targets)


def spent_stages(plans: Iterable[FullPlan]) -> set[tuple[str, str]]:
    """(kind, key) of vectors and indexes of `rule all` that only finished stages read: none is built again."""
    stages = {(stage.kind, stage.key): stage for plan in plans for stage in stages_of_all(plan)}
    waiting = {
        (upstream.kind, upstream.key)
        for stage in stages.values()
        if not Path(stage.manifest).is_file()
        for upstream in stage.upstream.values()
    }
    used = {(upstream.kind, upstream.key) for stage in stages.values() for upstream in stage.upstream.values()}
    return {(kind, key) for kind, key in used - waiting if kind in LARGE}
