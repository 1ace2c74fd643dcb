"""Plan stages of one configuration and of its variants, each with all that it needs."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tandem.config.loading import Variants
from tandem.config.merging import Raw
from tandem.config.settings import Settings
from tandem.plan import (
    dataset_stages,
    reported,
    run_expressions,
    scoring,
    starting_encoders,
)
from tandem.plan.context import Context, Upstream
from tandem.plan.graph import Stage, Stages


class Planner:
    """Plan the models and runs of one configuration; it finds stages that it shares with others by their digests."""

    def __init__(self, settings: Settings, stages: Stages) -> None:
        self.settings = settings
        self.ctx = Context(settings, stages)
        dataset_stages.draw_missing_dev(self.ctx)

    def model(self, name: str, where: str, objectives: tuple[str, ...] = ()) -> Stage:
        """Return the stage that trains a model; `where` names the key that refers to it."""
        return self.ctx.model(name, where, objectives)

    def dataset(self, name: str | None = None) -> Stage:
        """Return the stage that makes a dataset: the configuration's, unless named."""
        return dataset_stages.dataset(self.ctx, name or self.settings.dataset)

    def encoder(self, name: str) -> Stage:
        """Return the stage of a starting encoder."""
        return starting_encoders.encoder(self.ctx, name)

    def run(self, system: str, split: str, where: str, dataset: str | None = None) -> Stage:
        """Return the stage of a system's run, on the configuration's dataset unless one is named."""
        return run_expressions.run(self.ctx, system, split, where, dataset or self.settings.dataset)

    def reported_runs(self, system: str, where: str) -> list[Stage]:
        """Return the stages of a system's runs whose scores are reported; for a group, one on each of its datasets."""
        members = dataset_stages.list_members(self.ctx, self.settings.dataset)
        return [self.run(system, self.split(name), where, name) for name in members]

    def score(
        self,
        system: str,
        where: str,
        dataset: str | None = None,
        by: list[str] | None = None,
        restricted: Upstream | None = None,
    ) -> Stage:
        """Return the stage that scores a system's run by the reported measures, or by others; see `scoring.score`."""
        return scoring.score(
            self.ctx, system, where, dataset or self.settings.dataset, by, restricted=restricted
        )

    def split(self, dataset: str | None = None) -> str:
        """Return the split whose scores are reported."""
        return reported.reported_split(self.ctx, dataset or self.settings.dataset)


class Planners:
    """Hold the planner of one configuration and those of its variants, which share equal stages.

    Raises:
        UserError: one line per mistake in the configuration itself.
    """

    def __init__(self, raw: Raw, root: Path) -> None:
        self.variants = Variants(raw, root)
        self.stages = Stages()
        self._planners: dict[int, Planner] = {}
        self.base = self.of({})

    def of(self, overrides: Mapping[str, object]) -> Planner:
        """Return the planner of the configuration with dotted paths overridden, as `Variants.settings` has it."""
        settings = self.variants.settings(overrides)  # equal overrides give the same object
        if id(settings) not in self._planners:
            self._planners[id(settings)] = Planner(settings, self.stages)
        return self._planners[id(settings)]

    def notices(self, stages: Iterable[Stage]) -> list[str]:
        """Return a line for each change that planning made to a dataset of this configuration or a needed variant."""
        collections = [stage for stage in stages if stage.declared.holds == "collection"]
        drawn = {stage.dataset for stage in collections if stage.values.get("dev_from_train")}
        lines: dict[str, None] = {}
        for planner in self._planners.values():
            for name, line in planner.ctx.notices.items():
                if planner is self.base or name in drawn:
                    lines[line] = None
        return list(lines)
