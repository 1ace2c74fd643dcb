"""Plan all that a configuration can make: its tables and views, their targets on the command line, and its mistakes."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tandem.config.merging import Raw
from tandem.config.settings import Settings
from tandem.errors import Unavailable, UserError, nearest
from tandem.plan.context import (
    check_name,
    checks_entry,
    checks_section,
    list_blocks,
    list_choosing,
    lists_unused_keys,
    plans_reranking,
    plans_run,
    plans_view,
)
from tandem.plan.graph import Placement, Stage, Stages, upstream_first
from tandem.plan.planned_tables import Tables
from tandem.plan.planner import Planner, Planners
from tandem.plan.reported import check_measure_names, check_reported_split
from tandem.stages import KINDS
from tandem.store.job import load

Check = Callable[[], object]  # raises a UserError; returns the stage if the target is one


class ReportPart(NamedTuple):
    """Hold what a view adds to the report.

    Attributes:
        value: the JSON that `@adds_to_report` gets under the view's name.
        stages: the stages whose artifacts it reads, and which the report waits for.
    """

    value: Any
    stages: Sequence[Stage] = ()


class View:
    """Something that can be made in addition to tables and the report; a package registers it by `@plans_view`.

    Its rules, in a file `rules.smk` next to the package's modules, get it by `plan.view("<name>")`.

    Attributes:
        rules: names of its rules and targets, which no table's target may have.
        tables: the tables without a layout that it writes, without the endings of their files.
        writes: its other files, and its folders, next to the report: `audits.html`, `notebooks`.
    """

    rules: ClassVar[tuple[str, ...]] = ()
    tables: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, plan: "Plan") -> None:
        self.plan = plan

    def targets(self) -> dict[str, list[Check]]:
        """Return target of the command line → the functions that must succeed for it."""
        return {}

    def files(self) -> dict[str, Callable[[], list[str]]]:
        """Return target → its files, for targets that are not the name of a rule."""
        return {}

    def files_of_all(self) -> list[str]:
        """Return the files that `rule all` makes, and that the report waits for."""
        return []

    def scores(self, target: str) -> list[Stage]:
        """Return the scores that it shows for a target of the command line; planning reports their peculiarities."""
        return []

    def files_of_paper(self, paper: str) -> list[str]:
        """Return the files that belong to a paper, in addition to those of its layouts."""
        return []

    def everything(self) -> list[Check]:
        """Return functions that plan the stages behind everything that it can make; each may fail."""
        return []

    def report_part(self) -> ReportPart | None:
        """Return what it adds to the report by the function of its name under `@adds_to_report`; None: nothing."""
        return None

    def downloads(self) -> list[Stage]:
        """Return stages outside `rule all` whose files `tandem prefetch` must download as well."""
        return []


class Plan:
    """Answer all that the rules of the main chain ask for; plan tables and views when they are first needed.

    Args:
        raw: the configuration as files and command line have it.
        root: the checkout.
        views: the folder of tables, the report and what packages add.
    Raises:
        UserError: one line per mistake in the configuration.
    """

    def __init__(self, raw: Raw, root: Path, views: str = "results") -> None:
        self.root = root
        self.views = views
        self.planners = Planners(raw, root)
        self.planner = self.planners.base
        self.stages = self.planners.stages  # what has been planned so far
        self.settings = self.planner.settings
        self.placement = Placement(self.stages, self.settings.execution)
        check_all(self.settings)
        for system in self.settings.systems:
            self.planner.reported_runs(system, "systems")

    @cached_property
    def tables(self) -> Tables:
        """The tables that can be made; a `UserError` for a mistake in one that the configuration asks for."""
        return Tables(self.planners, self.root / "config/papers", self.root, self.views)

    @cached_property
    def added_views(self) -> dict[str, View]:
        """Views that packages and plugins add, by name; a `UserError` for a mistake in what they show."""
        return {name: plans_view[name](self) for name in plans_view}

    @property
    def split(self) -> str:
        """The split whose scores are reported."""
        return self.planner.split()

    def view(self, name: str) -> Any:
        """Return a view that a package adds, as its own rules ask for it."""
        return self.added_views[name]

    def tables_of_views(self) -> list[str]:
        """Return the tables that views write, without the endings of their files: these tables have no layout."""
        return [name for view in self.added_views.values() for name in view.tables]

    def report_parts(self) -> dict[str, ReportPart]:
        """Return what the views add to the report, by their names."""
        views = self.added_views.items()
        return {name: part for name, view in views if (part := view.report_part())}

    def targets(self) -> dict[str, list[Check]]:
        """Return target of the command line → the functions that must succeed for it."""
        targets: dict[str, list[Check]] = {
            "all": [self.in_report, self.files_of_all],
            "report": [self.in_report, self.files_of_all],
        }
        for paper in self.tables.papers:
            targets[paper] = [partial(self.of_paper, paper)]
        for name, table in self.tables.targets.items():
            targets[name] = [partial(self.tables.files, table)]
        for view in self.added_views.values():
            targets |= view.targets()
        return targets

    def plan_every_target(self) -> None:
        """Plan all other targets, as far as possible: the process of a job knows only its key."""
        for view in self.added_views.values():
            for check in view.everything():
                with suppress(UserError):
                    check()

    def check(self, target: str) -> list[str]:
        """Check that a target of the command line is available; files pass that a rule may make.

        Returns:
            A line for each dataset of which planning draws a split, and for each part that is not available and is
            left out of the target.
        Raises:
            UserError: it is unknown, or a line for each reason why it is not available.
        """
        known = self.targets()
        if target not in known and "/" not in target:
            raise UserError(f"{target} is not a target{nearest(target, known)}")
        self.check_file(target)
        checks = known.get(target, [])
        tables = self._tables_of(target)
        results = [check() for check in checks]
        planned = [result for result in results if isinstance(result, Stage)] + self.tables.scores(
            tables
        )
        for stage in unfinished(planned):
            stage.declared.require_package()

        shown = [*planned, *self.scores_of_views(target)]
        lines = self.planners.notices(upstream_first(shown))
        if target == "all":
            lines += self.tables.unshown()
        if checks:
            lines += self.unused_datasets()
            for key in lists_unused_keys:
                lines += lists_unused_keys[key](self.settings)
        lines += load("extras.reported_keys:list_optimistic_keys")(self, shown)
        return lines + self.tables.lacking(tables)

    def _tables_of(self, target: str) -> list[str]:
        """Return the tables that a target of the command line shows."""
        if target == "all":
            return self.tables.requested()
        if target in self.tables.targets:
            return [self.tables.targets[target]]
        return self.tables.papers.get(target, [])

    def check_file(self, target: str) -> None:
        """Refuse a file among the tables or stages that no rule of this configuration makes."""
        if table := re.fullmatch(
            rf"{re.escape(self.views)}/tables/(.+)\.(csv|md|tex|json|html)", target
        ):
            own = [*self.tables.layouts, *self.tables_of_views()]
            if table[1] not in own:
                raise UserError(f"{target}: {table[1]} is not a table{nearest(table[1], own)}")
        stage = re.fullmatch(r"results/[^/]+/([^/]+)/([^/]+-[0-9a-f]{10})/stage\.json", target)
        if stage and stage[1] in KINDS and (stage[1], stage[2]) not in self.stages:
            problem = "this configuration has no such stage; its key has changed, or another configuration has it"
            raise UserError(f"{target}: {problem}")

    def unused_datasets(self) -> list[str]:
        """Return a line if the configuration defines datasets but uses none of them, as `dataset` names another."""
        own = self.planners.variants.own_datasets
        used = {stage.dataset for stage in self.stages.values()}
        if not own or used.intersection(own):
            return []
        hint = f"`dataset: {own[0]}` searches it instead of {self.settings.dataset}"
        return [f"datasets defines {', '.join(own)}, which nothing uses; {hint}"]

    def of_paper(self, paper: str) -> list[str]:
        """Return the files of a paper's tables, as far as they can be made; a `UserError` if none can."""
        tables = [table for table in self.tables.papers[paper] if table in self.tables]
        if not tables:
            reason = self.tables.why_missing(*self.tables.papers[paper])
            raise UserError(f"{paper}: none of its tables can be made: {reason}")
        own = [file for view in self.added_views.values() for file in view.files_of_paper(paper)]
        return [*self.tables.files(*tables), *own]

    def in_report(self) -> list[str]:
        """Return the files of the tables that the report shows; a `UserError` if there is none."""
        if not self.tables.requested():
            allowed = ", ".join(sorted(self.tables.layouts))
            raise UserError(f"tables is [], and the report shows tables; allowed: {allowed}")
        return self.tables.files()

    def files_of_all(self) -> list[str]:
        """Return the files of views that `rule all` makes, and the report waits for."""
        return [file for view in self.added_views.values() for file in view.files_of_all()]

    def scores_of_views(self, target: str) -> list[Stage]:
        """Return the scores that views show for a target of the command line."""
        return [stage for view in self.added_views.values() for stage in view.scores(target)]

    def own_runs(self) -> list[str]:
        """Return the runs that the configuration itself names: its `systems`, then the rows of its tables."""
        return list(
            dict.fromkeys([*self.settings.systems, *self.tables.runs(self.tables.requested())])
        )


def unfinished(stages: Iterable[Stage]) -> Iterator[Stage]:
    """Yield the unfinished stages among some and their inputs, each once; inputs of a finished stage do not matter."""
    waiting = list(stages)
    seen: set[str] = set()
    while waiting:
        stage = waiting.pop()
        if stage.manifest not in seen and not Path(stage.manifest).is_file():
            seen.add(stage.manifest)
            waiting += stage.upstream.values()
            yield stage


def check_all(settings: Settings) -> None:
    """Plan everything that the configuration names, requested or not, so that all mistakes are reported at once."""
    ctx = Planner(settings, Stages()).ctx
    checks: list[Check] = []
    for block in (*list_blocks(plans_run), *list_blocks(plans_reranking)):
        checks += [partial(check_name, ctx, block, name) for name in getattr(settings, block)]
    # From the last block to the first, runs at the end: models are checked before the runs that name them, so that a
    # cycle is reported as one of models.
    blocks = list_blocks(checks_entry)[::-1]
    for block in sorted(blocks, key=lambda block: block in plans_run):
        checks += [partial(checks_entry[block], ctx, name) for name in getattr(settings, block)]
    checks += [
        *(partial(checks_section[key], ctx) for key in checks_section),
        partial(check_reported_split, ctx),
    ]

    wrong = check_measures(settings)
    for check in checks:
        try:
            check()
        except Unavailable:
            continue
        except UserError as error:
            wrong.append(str(error))
    if wrong:
        raise UserError("\n".join(dict.fromkeys(wrong)))


def check_measures(settings: Settings) -> list[str]:
    """Return an error for every unknown measure, with its key.

    Layouts and views are not looked at: what they show must be among the measures that are scored.
    """
    measures: dict[str, Sequence[str]] = {
        "score.usual": settings.score.usual,
        "score.measures": settings.score.measures or (),
        "bm25.tune.measure": [settings.bm25.tune.measure],
        "validation.measure": [settings.validation.measure],
    }
    for block, name, entry in list_choosing(settings):
        for key, measure in entry.chosen_by.items():
            measures[f"{block}.{name}.{key}"] = [measure]
    for name, dataset in settings.datasets.items():
        measures[f"datasets.{name}.measures"] = dataset.measures or ()
    for name, model in settings.models.items():
        if model.validation.model_fields_set:
            measures[f"models.{name}.validation.measure"] = [model.validation.measure]

    wrong = []
    for path, names in measures.items():
        if not names:
            continue
        try:
            check_measure_names(path, names)
        except UserError as error:
            wrong.append(str(error))
    return wrong
