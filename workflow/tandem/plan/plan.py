"""What a configuration wants: its tables and sweeps, and the way from the command line to each."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tandem.config.loading import Raw
from tandem.errors import UserError
from tandem.plan.context import Validated
from tandem.plan.graph import Hosted, Stage
from tandem.plan.planner import Planners, check_all
from tandem.plan.sweeps import Sweeps
from tandem.plan.tables import Row, Tables

Check = Callable[[], object]


class Plan:
    """Everything the main chain's rules ask.

    Args:
        raw: the configuration as Snakemake gathered it.
        root: the checkout.
    Raises:
        UserError: one line per mistake in the configuration.
    """

    def __init__(self, raw: Raw, root: Path) -> None:
        self.planners, self.root = Planners(raw, root), root
        self.stages, self.planner = self.planners.stages, self.planners.base
        self.settings = self.planner.settings
        self.hosted = Hosted(self.stages, self.settings.execution)
        check_all(self.settings)
        self.tables = Tables(self.planners, root / "config/papers", root)
        for system in self.settings.systems:
            self.planner.run(system, self.split, "systems")
        self.swept = Sweeps(self.planners, root / "config/sweeps")

    @property
    def split(self) -> str:
        """The split whose scores are reported."""
        return self.planner.split()

    def document(self) -> Raw:
        """The configuration as a file has it, with every default, except of datasets and encoders."""
        document: Raw = self.settings.model_dump(mode="json", by_alias=True)
        own = self.settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
        document |= {block: own.get(block, {}) for block in ("datasets", "encoders")}
        for name, model in document["models"].items():  # a model's `validation` overrides only what it sets
            model["validation"] = own["models"][name].get("validation", {})
        return document

    def targets(self) -> dict[str, list[Check]]:
        """Target of the command line → what must be possible for it."""
        return {
            "all": [self.tables.files, self.sweeps],
            "fidelity": [self.fidelity],
            **{paper: [partial(self.of_paper, paper)] for paper in self.tables.papers},
            **{name: [partial(self.swept.files, names)] for name, names in self.swept.targets.items()},
            **{name: [partial(self.tables.files, table)] for name, table in self.tables.targets.items()},
        }

    def check(self, target: str) -> list[str]:
        """Check that a target of the command line is available; files and rules that need no plan pass.

        Returns:
            A line for each part that is not available and that the target does without.
        Raises:
            UserError: a line for each reason why the target is not available.
        """
        for check in self.targets().get(target, ()):
            check()
        return self.tables.reasons(target) if target in self.tables.papers else []

    def of_paper(self, paper: str) -> list[str]:
        """The files of a paper's tables, as far as they can be made.

        Raises:
            UserError: none can be made.
        """
        tables = [table for table in self.tables.papers[paper] if table in self.tables]
        if not tables:
            raise UserError("\n".join(self.tables.reasons(paper)))
        return self.tables.files(*tables)

    def wanted_sweeps(self) -> list[str]:
        """Names of the sweeps of `rule all`: the configuration's."""
        return self.swept.wanted

    def sweeps(self, *names: str) -> list[str]:
        """The files of sweeps that programs read, of the wanted ones if none is named."""
        return self.swept.files(names or self.swept.wanted)

    def validations(self, full: bool = True) -> list[Row]:
        """The checkpoints of the wanted tables' models with their validations, as `fidelity` and `report` read them.

        They stand model by model and part by part, the part that decides first.

        Args:
            full: with those on the full corpus.
        """
        rows = []
        for validated in self._validated(self.tables.wanted_scores()):
            value = self.planner.full_value(validated).folder if full else ""
            rows.append(validated.row | {"full": value})
        return rows

    def _validated(self, stages: list[Stage]) -> list[Validated]:
        """The validations of all checkpoints of the models that some stages are made of."""
        above: dict[str, Stage] = {}
        while stages:
            stage = stages.pop()
            if stage.folder not in above:
                above[stage.folder] = stage
                stages += stage.upstream.values()
        ctx = self.planner.ctx
        # Of equal models of two names the first is shown.
        by_folder: dict[str, list[Validated]] = {}
        for name, validated in ctx.validated.items():
            if name in ctx.models:
                by_folder.setdefault(ctx.models[name].folder, validated)
        return [value for folder, validated in by_folder.items() if folder in above for value in validated]

    def fidelity(self) -> list[Row]:
        """The same for the command `fidelity`; a `UserError` where there is nothing to compare."""
        if not (rows := self.validations()):
            raise UserError("fidelity: no model of the wanted tables has train.checkpoints; set it to a number")
        return rows
