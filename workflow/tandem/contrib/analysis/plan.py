"""Plan the stages behind the notebooks: wrong results, a joint model's training, and training lists."""

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar

from tandem.config.references import CROSS_PARTS
from tandem.config.representations import is_single
from tandem.contrib.analysis.options import Analysis
from tandem.errors import UserError, nearest, printable
from tandem.extras.planning import choose_run
from tandem.plan.context import Upstream, json_of, plans_view
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.plan import Check, Plan, ReportPart, View
from tandem.plan.reported import reported_split, run_depth
from tandem.plan.starting_encoders import judges
from tandem.stages.base import Json

# this table is made from the sheet of wrong results, not from a layout
_ERROR_TABLE = "dureader_retrieval/table10"


@plans_view("analysis")
class AnalysisView(View):
    """The notebooks, and DuReader-retrieval's table of error types."""

    rules = ("notebook", "notebooks", "error_table", "dureader_retrieval_table10")
    tables = (_ERROR_TABLE,)
    writes = ("notebooks",)
    notebooks: ClassVar[tuple[str, ...]] = ("error_analysis", "distillation_dynamics", "negatives")

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.planner = plan.planner
        self.ctx = plan.planner.ctx
        self.settings = plan.settings.section("analysis", Analysis)

    def targets(self) -> dict[str, list[Check]]:
        """See `View.targets`."""
        error_table: list[Check] = [self.errors, self.sheet]
        return {
            "notebooks": [self.notebook_files],
            "error_table": error_table,
            "dureader_retrieval_table10": error_table,
        }

    def files(self) -> dict[str, Callable[[], list[str]]]:
        """See `View.files`."""
        return {
            "notebooks": self.notebook_files,
            "dureader_retrieval_table10": lambda: [self._error_table],
        }

    def files_of_paper(self, paper: str) -> list[str]:
        """See `View.files_of_paper`."""
        if not _ERROR_TABLE.startswith(f"{paper}/"):
            return []
        try:
            self.errors()
        except UserError:
            return []
        return [self._error_table]

    def everything(self) -> list[Check]:
        """See `View.everything`."""
        return [partial(self.stage, notebook) for notebook in self.notebooks]

    def report_part(self) -> ReportPart | None:
        """Return the error analysis, if it is finished: the report does not wait for it."""
        try:
            manifest = self.errors().manifest
        except UserError:
            return None
        return ReportPart([manifest]) if Path(manifest).is_file() else None

    def stage(self, notebook: str) -> Stage:
        """Return the stage that a notebook shows; raise a `UserError` if it needs a model or split that is missing."""
        return self._stages[notebook]()

    @cached_property
    def _stages(self) -> dict[str, Callable[[], Stage]]:
        return dict(zip(self.notebooks, (self.errors, self.dynamics, self.hardness), strict=True))

    def notebook_files(self) -> list[str]:
        """Return the paths of the executed notebooks; raise a `UserError` if one of them has nothing to show."""
        folder = f"{self.plan.views}/notebooks"
        return [f"{folder}/{name}-{self.stage(name).dataset}.ipynb" for name in self.notebooks]

    @property
    def _error_table(self) -> str:
        return f"{self.plan.views}/tables/{_ERROR_TABLE}.csv"

    def errors(self) -> Stage:
        """Return the stage with the wrong results of a system on the reported split."""
        entry, data = self.settings.errors, self.plan.settings.dataset
        split = reported_split(self.ctx, data)
        deepest = run_depth(self.ctx, split, data)
        if entry.top > deepest:
            at = "analysis.errors.top"
            raise UserError(
                f"{at} is {entry.top}, but runs on {split} are {deepest} deep; raise depth.test"
            )

        # Relevance is decided as for the system's score: by qrels, or by answers in its run.
        system = entry.system or choose_run(
            self.plan, "de_bm25neg+ce_deneg", lambda run: "+" in run
        )
        score = self.planner.score(system, "analysis.errors.system", data)
        upstream: Upstream = {
            "dataset": dataset(self.ctx, data),  # which refuses a group
            **{role: score.upstream.get(role) for role in ("run", "match")},
        }
        params: Json = {"split": split, "top": entry.top, "queries": entry.queries}
        params["ignore_identical_ids"] = self.ctx.dataset_entry(data).ignore_identical_ids
        return self.ctx.stage("errors", data, score.name, params, upstream)

    def sheet(self) -> str | None:
        """Return the annotators' filled sheet of wrong results, if there is one."""
        sheet = self.settings.errors.sheet
        if sheet is not None and not Path(sheet).is_file():
            raise UserError(f"analysis.errors.sheet is {printable(sheet)}; no such file")
        return sheet

    def dynamics(self) -> Stage:
        """Return the stage with a joint model's score distributions at its start, any checkpoints, and its end."""
        where, entry = "analysis.dynamics.model", self.settings.dynamics
        name = entry.model or self._choose_joint_model()
        model = self.planner.model(name, where, ("joint",))
        if model.declared.holds == "checkpoint":
            raise UserError(
                f"{where}: {name} is a checkpoint; name its model, all of them are looked at"
            )

        chain = self.ctx.checkpoints.get(self.ctx.model_name(name), {1: model})
        points = [stage for number, stage in chain.items() if number]  # without the start, number 0
        first = points[0]
        representation = first.params.representation
        if not is_single(representation):
            problem = f"{name} is of representation {representation.type}"
            raise UserError(f"{where}: {problem}; this needs single vectors")
        roles = ("dataset", "candidates", "tokens", "cross_tokens", "retriever", "reranker")
        upstream = {role: first.upstream[role] for role in roles}
        upstream |= {f"point.{i}": point for i, point in enumerate(points)}

        train = first.values["train"]
        lists = {name: train[name] for name in ("list_size", "positives", "seed") if name in train}
        if train.get("sizes") == "data":
            lists["list_size"] = None
        if train["choose"] == "dev" and "validation" not in first.upstream:
            lists["set_apart"] = train["validation_queries"]
        encode = json_of(self.plan.settings.encode, "precision", "batch_tokens")
        params: Json = {"queries": entry.queries, **lists, **self.ctx.scoring, "encode": encode}
        return self.ctx.stage("dynamics", model.dataset, model.name, params, upstream)

    def _choose_joint_model(self) -> str:
        """Return `rocketqav2`, else the first joint model behind the configuration's own runs, else any joint model."""
        models = self.plan.settings.models
        names = ["rocketqav2", *self._trained_models(), *models]
        for name in names:
            if name in models and models[name].objective == "joint":
                return name
        return names[0]

    def _trained_models(self) -> list[str]:
        """Return the first trained model of each of the configuration's own runs, each once."""
        models = [self.ctx.trained_model(run) for run in self.plan.own_runs()]
        return [model for model in dict.fromkeys(models) if model]

    def hardness(self) -> Stage:
        """Return the stage with the negatives of some models' training lists and the judges' verdicts on them."""
        entry, models = self.settings.negatives, self.plan.settings.models
        names = [name for name in entry.of if self.ctx.model_name(name) in models]
        if not names and "of" not in entry.model_fields_set:
            names = self._trained_models()
        judge_names = [
            name for name in self.ctx.members(list(entry.judges)) if self.ctx.has_model(name)
        ]
        self._refuse_unknown("of", names, names)
        self._refuse_unknown("judges", judge_names, names)

        lists = [self._find_lists(name, "analysis.negatives.of") for name in names]
        data = lists[0].dataset
        for stage in lists:
            if stage.dataset != data:
                problem = f"{names[0]} is trained on {data}, another on {stage.dataset}"
                raise UserError(f"analysis.negatives.of: {problem}; compare one dataset's")

        upstream = {"dataset": lists[0].upstream["dataset"]}
        upstream |= {f"candidates.{i}": stage for i, stage in enumerate(lists)}
        judged = judges(self.ctx, judge_names, "analysis.negatives.judges", data, CROSS_PARTS)
        params: Json = {
            "models": names,
            "drawn_from": [models[self.ctx.model_name(name)].candidates.from_ for name in names],
            "queries": entry.queries,
            "threshold": entry.threshold,
        }
        if judged:
            params |= self.ctx.scoring
        return self.ctx.stage("hardness", data, "negatives", params, {**upstream, **judged})

    def _refuse_unknown(self, key: str, known: list[str], models: list[str]) -> None:
        """Refuse a model that does not exist; the models of a default may be absent with their recipe."""
        entry = self.settings.negatives
        may_be_absent = key not in entry.model_fields_set and models
        for name in self.ctx.members(list(getattr(entry, key))):
            if name not in known and not may_be_absent:
                known_models = list(self.plan.settings.models)
                raise UserError(
                    f"analysis.negatives.{key}: {name} is unknown{nearest(name, known_models)}"
                )

    def _find_lists(self, name: str, where: str) -> Stage:
        """Return the training lists of a model; of its first part, if it is trained in several."""
        model = self.planner.model(name, where)
        chain = self.ctx.checkpoints.get(self.ctx.model_name(name), {1: model})
        return chain[1].upstream["candidates"]
