"""What a configuration wants: its tables, sweeps, audits and analyses, and the way from the command line to each."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.errors import UserError
from tandem.planning.analysed import Analyses
from tandem.planning.config import Config
from tandem.planning.graph import Stage, Stages
from tandem.planning.hosted import Hosted
from tandem.planning.resolver import check_all
from tandem.planning.rows import Row
from tandem.planning.sweeps import Sweeps
from tandem.planning.tabled import Tables
from tandem.planning.variants import Variants

if TYPE_CHECKING:
    from tandem.planning.counting import Present


class Plan:
    """Everything the Snakefile asks.

    Args:
        told: the configuration as Snakemake gathered it.
        root: the checkout.
    Raises:
        UserError: one line per mistake in the configuration.
    """

    def __init__(self, told: Config, root: Path) -> None:
        self.stages = Stages()
        self.variants = Variants(told, root, self.stages)
        self.resolver = self.variants.resolver({})
        self.config = self.resolver.config
        self.hosted = Hosted(self.stages, self.config["execution"])
        self.analyses = Analyses(self.resolver)
        self.catalogue = dict(self.config["datasets"])  # without the variants that tables ask for
        check_all(self.config)
        self.statistics = {path.stem: path for path in sorted((root / "config/statistics").glob("*.yaml"))}
        self._counted: dict[str, Present] = {}
        self.tables = Tables(self.resolver, self.variants, root / "config/papers")
        for system in self.config["systems"]:
            self.resolver.run(system, self.split, "systems")
        self.swept = Sweeps(self.variants, root / "config/sweeps")

    @property
    def split(self) -> str:
        """The split whose scores are reported."""
        return self.resolver.runs.split(self.config["dataset"])

    def check(self, target: str) -> list[str]:
        """See that what a target of the command line asks for can be had; files and rules that need no plan pass.

        Returns:
            A line for each part that cannot be had and that the target does without.
        Raises:
            UserError: a line for each reason why it cannot be had.
        """
        asked: dict[str, list[Callable[[], object]]] = {
            "all": [self.tables.made, self.sweeps],
            "audits": [self.audits],
            "notebooks": [self.analyses.files],
            "dureader_retrieval_table10": [partial(self.analyses.stage, "error_analysis"), self.analyses.sheet],
            "index_tradeoffs": [self.tradeoffs],
            "fidelity": [self.fidelity],
            **{paper: [partial(self.of_paper, paper)] for paper in self.tables.papers},
            **{name: [partial(self.swept.files, names)] for name, names in self.swept.targets.items()},
            **{name: [partial(self.tables.made, table)] for name, table in self.tables.targets.items()},
        }
        for ask in asked.get(target, ()):
            ask()
        return self.tables.absent(target) if target in self.tables.papers else []

    def of_paper(self, paper: str) -> list[str]:
        """The files of a paper's tables, as far as they can be made, those of its datasets included.

        Raises:
            UserError: none can be made.
        """
        there = [table for table in self.tables.papers[paper] if table in self.tables]
        if not there:
            raise UserError("\n".join(self.tables.absent(paper)))
        counts = [f"results/statistics/{name}.csv" for name in self.statistics if name.startswith(f"{paper}_")]
        return [*self.tables.made(*there), *self.analyses.tables(paper), *counts]

    def wanted_sweeps(self) -> list[str]:
        """Names of the sweeps of `rule all`: the configuration's."""
        return self.swept.wanted

    def sweeps(self, *names: str) -> list[str]:
        """The files of sweeps that programs read, of the wanted ones if none is named."""
        return self.swept.files(names or self.wanted_sweeps())

    def audits(self) -> list[str]:
        """Manifests of the audits of the dataset, and of the scores that show their effect."""
        return [stage.manifest for stage in self.resolver.audits.all(self.config["dataset"])]

    def validations(self, full: bool = True) -> list[Row]:
        """The checkpoints of the wanted tables' models with their validations, as `fidelity` and `report` read them.

        Args:
            full: with those on the full corpus.
        """
        validated = self.resolver.validated
        models = validated.of_models(self.tables.wanted_scores())
        found = [(one, validated.full(one) if full else None) for one in models]
        return [one.row | {"full": whole.folder if whole else ""} for one, whole in found]

    def fidelity(self) -> list[Row]:
        """The same for the command `fidelity`; a line where there is nothing to compare."""
        if not (rows := self.validations()):
            raise UserError("fidelity: no model of the wanted tables has train.checkpoints; set it to a number")
        return rows

    def tradeoffs(self) -> Stage:
        """The stage that measures indexes against one another."""
        try:
            return self.resolver.indexed.tradeoffs()
        finally:
            self.resolver.opened.clear()

    def by_name(self) -> None:
        """Plan what else may be asked for by name, as far as it can be had: a job's own process only knows its key."""
        asked: list[Callable[[], object]] = [self.audits, self.tradeoffs]
        asked += [partial(self.analyses.stage, name) for name in self.analyses.notebooks]
        for ask in asked:
            with suppress(UserError):
                ask()
        self.resolver.opened.clear()

    def counted(self, table: str) -> "Present":
        """The datasets of a statistics table: stages of those that are here, and why the others are not counted."""
        # Imported and asked only for these tables: looking for downloads takes a second or two.
        from tandem.planning.counting import count

        if table not in self._counted:
            self._counted[table] = count(self.statistics[table], self.resolver)
        return self._counted[table]
