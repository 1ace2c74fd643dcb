"""The checkpoints of a run's models with their validations, on the reduced and on the full corpus."""

from typing import NamedTuple

from tandem.contrib.validation.plan import Validated, full_value, list_validated
from tandem.errors import UserError
from tandem.plan.context import plans_view
from tandem.plan.graph import Stage, upstream_first
from tandem.plan.plan import Check, ReportPart, View


class ValidatedTwice(NamedTuple):
    """Hold a validated checkpoint, and the stage of its value on the full corpus; None if that is not requested."""

    validated: Validated
    full: Stage | None

    @property
    def row(self) -> dict[str, str]:
        """Return its names and the folders of its stages, for a command line."""
        return {**self.validated.row, "full": self.full.folder if self.full else ""}

    @property
    def stages(self) -> list[Stage]:
        """Return the stages of the checkpoint and of its values."""
        both = [self.validated.checkpoint, self.validated.reduced]
        return [*both, self.full] if self.full else both


@plans_view("fidelity")
class FidelityView(View):
    """The page that compares validations, and the curves of checkpoints in the report."""

    rules = ("fidelity",)
    writes = ("fidelity.html", "fidelity.csv")

    def targets(self) -> dict[str, list[Check]]:
        """See `View.targets`."""
        return {"fidelity": [self.compared]}

    def everything(self) -> list[Check]:
        """See `View.everything`."""
        return [self.list_checkpoints]

    def report_part(self) -> ReportPart | None:
        """Return the checkpoints, with validations on the full corpus if `validation.fidelity` is set."""
        checkpoints = self.list_checkpoints(full=self.plan.settings.validation.fidelity)
        if not checkpoints:
            return None
        stages = [stage for checkpoint in checkpoints for stage in checkpoint.stages]
        return ReportPart([checkpoint.row for checkpoint in checkpoints], stages)

    def list_checkpoints(self, full: bool = True) -> list[ValidatedTwice]:
        """Return the checkpoints of the requested tables' models with their validations.

        They are ordered by model, then by part, the part that decides first.

        Args:
            full: include validations on the full corpus.
        """
        planner = self.plan.planner
        models = planner.ctx.planned_models()
        needed = {stage.folder for stage in upstream_first(self.plan.tables.requested_scores())}
        # If two names have equal models, the first is shown.
        checkpoints_of: dict[str, list[Validated]] = {}
        for name in planner.ctx.checkpoints:
            if name in models and models[name].folder in needed:
                checkpoints_of.setdefault(models[name].folder, list_validated(planner.ctx, name))

        compared = []
        for checkpoints in checkpoints_of.values():
            for validated in checkpoints:
                compared.append(
                    ValidatedTwice(validated, full_value(planner.ctx, validated) if full else None)
                )
        return compared

    def compared(self) -> list[ValidatedTwice]:
        """Return the checkpoints with both validations, for the command `fidelity`.

        Raises:
            UserError: there is nothing to compare.
        """
        checkpoints = self.list_checkpoints()
        if checkpoints:
            return checkpoints
        example = ""
        for run in self.plan.own_runs():
            if trained := self.plan.planner.ctx.trained_model(run):
                example = f": --config 'models={{{trained}: {{train: {{checkpoints: 2}}}}}}'"
                break
        raise UserError(
            f"no model of the wanted tables has train.checkpoints; set it to a number{example}"
        )
