"""The plan with what the papers' tables do not need: lists of datasets and estimates.

The rules of extras.smk and the commands that look at everything a configuration could ask for use this plan; the core
plans without it.
"""

from contextlib import suppress
from itertools import product
from pathlib import Path

from tandem.config.merging import Raw
from tandem.errors import UserError
from tandem.plan.dataset_stages import list_members, splits
from tandem.plan.plan import Check, Plan
from tandem.store.artifact import ARCHIVE_SUFFIX, MANIFEST


class FullPlan(Plan):
    """The plan of every target."""

    def __init__(self, raw: Raw, root: Path, views: str = "results") -> None:
        super().__init__(raw, root, views)
        # All tables and views are planned now, in this order: the first of equal stages gives the name.
        self.targets()
        self.catalogue = self.settings.model_dump(mode="json", exclude_unset=True)["datasets"]

    def targets(self) -> dict[str, list[Check]]:
        """Return target of the command line → what must be possible for it."""
        return super().targets() | {"datasets": [], "estimate": []}

    def plan_every_target(self) -> None:
        """See `Plan.plan_every_target`; the runs of `systems` on all splits are targets by their keys, too."""
        super().plan_every_target()
        ctx = self.planner.ctx
        for name in list_members(ctx, self.settings.dataset):
            known = splits(ctx, name) or {"train", "dev", "test"}
            for system, split in product(self.settings.systems, sorted(known)):
                with suppress(UserError):
                    self.planner.run(system, split, "systems", name)

    def check_file(self, target: str) -> None:
        """See `Plan.check_file`; of a stage's archive, its manifest is checked."""
        if target.endswith(ARCHIVE_SUFFIX):
            target = f"{target.removesuffix(ARCHIVE_SUFFIX)}/{MANIFEST}"
        if target.endswith(f"/{MANIFEST}"):
            # a job's own process knows only its key
            self.plan_every_target()
        super().check_file(target)
