"""What configurations need: every stage that a target of theirs could ask for, or only those of `rule all`."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from tandem.config.loading import LOADER, Raw, gathered, merged
from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.plan.graph import Stage, upstream_first

ROOT = Path(__file__).parents[3]  # the checkout
SPENT = ("embeddings", "index")  # large, and needed only until runs are made from them


@dataclass
class Told:
    """One configuration, as Snakemake is told it.

    Attributes:
        files: laid upon config/config.yaml, one upon the other.
        values: `key=value`, laid upon those; the value is YAML.
    """

    files: list[Path] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def config(self) -> Raw:
        """The configuration as Snakemake would gather it.

        Raises:
            UserError: a file or value that cannot be read.
        """
        config = gathered(self.files, ROOT)
        for word in self.values:
            key, _, text = word.partition("=")
            try:
                config = merged(config, {key: yaml.load(text, LOADER)})
            except yaml.YAMLError:
                raise UserError(f"--config {word}: {text} is not valid YAML") from None
        return config

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return " ".join([*map(str, self.files), *self.values]) or "config/config.yaml"


def read_told(words: list[str]) -> tuple[list[Told], list[str]]:
    """Configurations on a command line, and the other words.

    `--configfile A.yaml [B.yaml …]` begins a configuration, which `--config key=value …` belongs to. Without either it
    is the checkout's own.
    """
    made, rest, into = list[Told](), list[str](), ""
    for word in words:
        if word in ("--configfile", "--configfiles"):
            made.append(Told())
            into = "files"
        elif word == "--config":
            if not made or made[-1].values:
                made.append(Told())
            into = "values"
        elif into == "files" and word.endswith((".yaml", ".yml", ".json")):
            made[-1].files.append(Path(word))
        elif into == "values" and "=" in word and not word.startswith("--"):
            made[-1].values.append(word)
        else:
            rest.append(word)
            into = ""
    return made or [Told()], rest


def known(told: Told) -> FullPlan:
    """A configuration's plan, with all that could be asked for by name: tables, sweeps, audits and so on.

    Raises:
        UserError: a mistake, or a wanted table or sweep that cannot be made.
    """
    plan = FullPlan(told.config(), ROOT)
    plan.tables.files()  # a table that cannot be planned today, its data being away, would leave out what it needs
    plan.sweeps()
    plan.by_name()
    asked: list[Callable[[], object]] = [plan.validations, *(partial(plan.counted, name) for name in plan.statistics)]
    for ask in asked:
        with suppress(UserError):
            ask()
    return plan


def of_all(plan: FullPlan) -> list[Stage]:
    """The stages of `rule all`: those behind the wanted tables, sweeps and what the report shows; inputs first."""
    plan.tables.files()
    targets = plan.tables.wanted_scores()
    targets += [one.stage for name in plan.wanted_sweeps() for one in plan.swept[name].scored]
    if plan.settings.audits.in_report:
        targets += plan.audit_stages()
    targets += [plan.planner.run(system, plan.split, "systems") for system in plan.settings.systems]
    return upstream_first(targets)


def spent(plans: Iterable[FullPlan]) -> set[tuple[str, str]]:
    """(kind, key) of vectors and indexes of `rule all` that only finished stages were made from.

    Snakemake builds none of them again: what was made from them is there.
    """
    wanted = {(stage.kind, stage.key): stage for plan in plans for stage in of_all(plan)}
    waiting = {
        (one.kind, one.key)
        for stage in wanted.values()
        if not Path(stage.manifest).is_file()
        for one in stage.upstream.values()
    }
    used = {(one.kind, one.key) for stage in wanted.values() for one in stage.upstream.values()}
    return {(kind, key) for kind, key in used - waiting if kind in SPENT}
