"""The plan with what the papers' tables do not need: audits, analyses behind notebooks, indexes.

The rules of extras.smk and the commands that look at everything a configuration could ask for use this plan; the core
plans without it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from tandem.config.datasets import UNSPACED
from tandem.config.indexes import ExactTermIndex, SeismicIndex, SeismicSearch
from tandem.config.merging import Raw
from tandem.config.models import ModelEntry
from tandem.config.references import CROSS_PARTS
from tandem.errors import UserError, nearest, printable
from tandem.plan import audits
from tandem.plan.context import Context, Upstream, json_of, search
from tandem.plan.datasets import may_have_split, require_split
from tandem.plan.encoders import dual_encoder, judges
from tandem.plan.graph import Stage
from tandem.plan.plan import Check, Plan
from tandem.plan.planner import Planner
from tandem.plan.reported import reported_split, run_depth
from tandem.plan.searches import (
    encode_both_sides,
    find_index,
    find_vector_index,
    plan_impacts,
    plan_index,
    plan_seismic,
    search_terms,
    search_tokens,
)
from tandem.stages.base import Json

ERROR_TABLE = "dureader_retrieval/table10"  # made from the sheet of wrong results, not from a layout


class FullPlan(Plan):
    """Everything that any target asks."""

    def __init__(self, raw: Raw, root: Path, views: str = "results") -> None:
        super().__init__(raw, root, views)
        self.catalogue = self.settings.model_dump(mode="json", exclude_unset=True)["datasets"]
        self.analyses = Analyses(self.planner, views, self.own_runs())

    def targets(self) -> dict[str, list[Check]]:
        """Return target of the command line → what must be possible for it."""
        error_table: list[Check] = [partial(self.analyses.stage, "error_analysis"), self.analyses.sheet]
        return super().targets() | {
            "audits": [self.audits],
            "datasets": [],
            "estimate": [],
            "notebooks": [self.analyses.files],
            "error_table": error_table,
            "dureader_retrieval_table10": error_table,
            "index_tradeoffs": [self.tradeoffs],
        }

    def of_paper(self, paper: str) -> list[str]:
        """Return the files of a paper's tables, that of its error analysis included."""
        return [*super().of_paper(paper), *self.analyses.tables(paper)]

    def audits(self) -> list[str]:
        """Return manifests of `audit_stages`."""
        return [stage.manifest for stage in self.audit_stages()]

    def audit_stages(self) -> list[Stage]:
        """Return every audit that the dataset allows, and the scores that show the effect of new labels."""
        planner, data = self.planner, self.settings.dataset
        subset = planner.audit("false_negatives", data)  # its runs are those of `noise` too
        stages = [plan_noise(planner, data), subset]
        if may_have_split(planner.ctx, data, "train"):
            stages.append(planner.audit("similar_queries", data))
        scores: list[Upstream] = [{}]
        # Where answers decide what is relevant there are no labels to correct.
        labelled = planner.ctx.dataset_entry(data).relevance == "qrels"
        judged = audits.audit_judges(planner.ctx, data) or self.settings.audits.false_negatives.sheet
        labels = [planner.audit("relabel", data)] if labelled and judged else []
        if self.settings.audits.llm_judge:
            labels.append(planner.audit("judge_llm", data))
        if labels:
            scores += [{"subset": subset}, *({"subset": subset, "labels": stage} for stage in labels)]
        return stages + [
            planner.score(system, "audits.systems", data, restricted=restricted)
            for system in audits.audited_systems(planner.ctx, data)
            for restricted in scores
        ]

    def tradeoffs(self) -> Stage:
        """Return the stage that measures indexes against one another: recall, latency and size."""
        entry, data, ctx = self.settings.tradeoffs, self.settings.dataset, self.planner.ctx
        split = entry.split or self.split
        require_split(ctx, data, split, "tradeoffs.split: queries are asked")

        def is_plain(run: str) -> bool:
            return "+" not in run and "@" not in run

        model = entry.model or choose_first_run(ctx, "de_bm25neg", self.own_runs(), is_plain)
        params = json_of(entry) | {"split": split}
        representation = dual_encoder(ctx, model, "tradeoffs.model").params.representation.type
        if search[representation] is search_terms:
            return self._plan_term_tradeoffs(model, split, params)

        encoding = "token_vectors" if search[representation] is search_tokens else "embeddings"
        upstream = encode_both_sides(ctx, encoding, model, split, "tradeoffs.model", data)
        for name in entry.indexes:
            find_vector_index(ctx, name, "tradeoffs.indexes")
        for i, name in enumerate(entry.indexes):
            upstream[f"index.{i}"] = plan_index(ctx, upstream["passages"], name, data)
        execution = ctx.execution("index_gpu", "devices")
        return ctx.stage("tradeoffs", data, f"{model}.{split}", params, upstream, execution)

    def _plan_term_tradeoffs(self, model: str, split: str, params: Json) -> Stage:
        """Return the stage that measures indexes of weights of terms against one another."""
        entry, data, ctx = self.settings.tradeoffs, self.settings.dataset, self.planner.ctx
        params = {key: value for key, value in params.items() if key not in ("indexes", "sweep")}  # of vectors
        upstream = plan_impacts(ctx, model, split, "tradeoffs.model", data)
        params["seismic"] = []
        for name in entry.indexes:
            built = find_index(ctx, name, "tradeoffs.indexes")
            if isinstance(built, ExactTermIndex):
                raise UserError(f"tradeoffs.indexes: {name} ranks by other weights than all others; leave it out")
            if isinstance(built, SeismicIndex):
                number = len(params["seismic"])
                params["seismic"].append({"name": name, **json_of(built, *SeismicSearch.model_fields)})
                upstream[f"seismic.{number}"] = plan_seismic(ctx, upstream, f"{model}@{name}", built, data)
        return ctx.stage("term_tradeoffs", data, f"{model}.{split}", params, upstream)

    def check_file(self, target: str) -> None:
        """See `Plan.check_file`."""
        if target.endswith("/stage.json"):
            self.plan_every_target()
        super().check_file(target)

    def plan_every_target(self) -> None:
        """Plan whatever else exists as a target, as far as possible: a job's own process only knows its key."""
        super().plan_every_target()
        checks: list[Check] = [self.audits, self.tradeoffs, *(partial(self.analyses.stage, it) for it in NOTEBOOKS)]
        for check in checks:
            with suppress(UserError):
                check()


def plan_noise(planner: Planner, data: str) -> Stage:
    """Return the audit of duplicates, overlap between splits and unjudged results."""
    ctx, split = planner.ctx, planner.split(data)
    language = ctx.dataset_entry(data).language
    shingle = {"unit": "characters", "size": 5} if language in UNSPACED else {"unit": "words", "size": 3}
    params = {**json_of(ctx.settings.audits.noise), "shingle": shingle, "split": split, "seed": ctx.settings.seed}
    upstream = {"dataset": planner.dataset(data), **audits.audited_runs(ctx, split, data)}
    return ctx.stage("noise", data, f"noise.{split}", params, upstream)


class Analyses:
    """Plan the analyses behind the notebooks: wrong results, a joint model's training, training lists."""

    def __init__(self, planner: Planner, views: str, own_runs: Sequence[str]) -> None:
        self.planner, self.ctx, self.settings, self.views = planner, planner.ctx, planner.settings.analysis, views
        self.own_runs = own_runs

    def stage(self, notebook: str) -> Stage:
        """Return what a notebook shows; a `UserError` if the configuration lacks a model or a split that it needs."""
        return NOTEBOOKS[notebook](self)

    def files(self) -> list[str]:
        """Return the executed notebooks; a `UserError` if one of them has nothing to show."""
        return [f"{self.views}/notebooks/{name}-{self.stage(name).dataset}.ipynb" for name in NOTEBOOKS]

    def tables(self, paper: str) -> list[str]:
        """Return the file of a paper's table that is made from an analysis, if it has one and its system is there."""
        if not ERROR_TABLE.startswith(f"{paper}/"):
            return []
        try:
            self.errors()
        except UserError:
            return []
        return [f"{self.views}/tables/{ERROR_TABLE}.csv"]

    def errors(self) -> Stage:
        """Return the wrong results of a system, on the split that is reported."""
        entry, data = self.settings.errors, self.planner.settings.dataset
        split = reported_split(self.ctx, data)
        if entry.top > (deepest := run_depth(self.ctx, split, data)):
            at = "analysis.errors.top"
            raise UserError(f"{at} is {entry.top}, but runs on {split} are {deepest} deep; raise depth.test")
        # What is relevant is decided as for the system's score: by qrels, or by answers in its run.
        system = entry.system or choose_first_run(
            self.ctx, "de_bm25neg+ce_deneg", self.own_runs, lambda run: "+" in run
        )
        score = self.planner.score(system, "analysis.errors.system", data)
        upstream = {role: score.upstream.get(role) for role in ("dataset", "run", "match")}
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
        """Return a joint model's score distributions at its start, its checkpoints if it has any, and its end."""
        place, entry = "analysis.dynamics.model", self.settings.dynamics
        name = entry.model or self._joint_model()
        model = self.planner.model(name, place, ("joint",))
        if model.declared.holds == "checkpoint":
            raise UserError(f"{place}: {name} is a checkpoint; name its model, all of them are looked at")

        chain = self.ctx.checkpoints.get(self.ctx.model_name(name), {1: model})
        points = [stage for number, stage in chain.items() if number]  # without the start, number 0
        first = points[0]
        roles = ("dataset", "candidates", "tokens", "cross_tokens", "retriever", "reranker")
        upstream = {role: first.upstream[role] for role in roles}
        upstream |= {f"point.{i}": point for i, point in enumerate(points)}

        train = first.values["train"]
        lists = {name: train[name] for name in ("list_size", "positives", "seed") if name in train}
        if train.get("sizes") == "data":
            lists["list_size"] = None
        if train["choose"] == "dev" and "validation" not in first.upstream:
            lists["set_apart"] = train["validation_queries"]
        encode = json_of(self.planner.settings.encode, "precision", "batch_tokens")
        params: Json = {"queries": entry.queries, **lists, **self.ctx.scoring, "encode": encode}
        return self.ctx.stage("dynamics", model.dataset, model.name, params, upstream)

    def _joint_model(self) -> str:
        """`rocketqav2`, else the first joint model behind the configuration's own runs, else its first one."""
        models = self.planner.settings.models
        trained = [self.ctx.trained_model(run) for run in self.own_runs]
        names = ["rocketqav2", *filter(None, trained), *models]
        for name in names:
            if name in models and models[name].objective == "joint":
                return name
        return names[0]

    def hardness(self) -> Stage:
        """Return the negatives of some models' training lists, and what judges say of them."""
        entry, models = self.settings.negatives, self.planner.settings.models
        names = [name for name in entry.of if self.ctx.model_name(name) in models]
        if not names and "of" not in entry.model_fields_set:
            trained = [self.ctx.trained_model(run) for run in self.own_runs]
            names = list(dict.fromkeys(filter(None, trained)))
        judge_names = [name for name in self.ctx.members(list(entry.judges)) if self.ctx.has_model(name)]
        self._refuse_unknown("of", names, names)
        self._refuse_unknown("judges", judge_names, names)

        lists = [self._lists(name, "analysis.negatives.of") for name in names]
        data = lists[0].dataset
        for stage in lists:
            if stage.dataset != data:
                problem = f"{names[0]} is trained on {data}, another on {stage.dataset}"
                raise UserError(f"analysis.negatives.of: {problem}; compare one dataset's")

        upstream = {"dataset": lists[0].upstream["dataset"]}
        upstream |= {f"candidates.{i}": stage for i, stage in enumerate(lists)}
        judged = judges(self.ctx, judge_names, "analysis.negatives.judges", data, CROSS_PARTS)
        entries: list[ModelEntry] = [models[self.ctx.model_name(name)] for name in names]
        params: Json = {
            "models": names,
            "drawn_from": [model.candidates.from_ for model in entries],
            "queries": entry.queries,
            "threshold": entry.threshold,
        }
        if judged:
            params |= self.ctx.scoring
        return self.ctx.stage("hardness", data, "negatives", params, {**upstream, **judged})

    def _refuse_unknown(self, key: str, known: list[str], models: list[str]) -> None:
        """Refuse a model that does not exist; those of a default may be absent, as the recipe that has them."""
        entry = self.settings.negatives
        for name in self.ctx.members(list(getattr(entry, key))):
            if name not in known and (key in entry.model_fields_set or not models):
                known_models = list(self.planner.settings.models)
                raise UserError(f"analysis.negatives.{key}: {name} is unknown{nearest(name, known_models)}")

    def _lists(self, name: str, where: str) -> Stage:
        model = self.planner.model(name, where)
        return self.ctx.checkpoints.get(self.ctx.model_name(name), {1: model})[1].upstream["candidates"]


def choose_first_run(ctx: Context, usual: str, own_runs: Sequence[str], suits: Callable[[str], bool]) -> str:
    """Return the usual run if the configuration has it, else its first one that suits and is a trained model's."""
    if ctx.has_run(usual):
        return usual
    trained = (run for run in own_runs if ctx.trained_model(run.split("+")[0]))
    return next(filter(suits, trained), usual)


# Notebook → the analysis that it shows.
NOTEBOOKS = {
    "error_analysis": Analyses.errors,
    "distillation_dynamics": Analyses.dynamics,
    "negatives": Analyses.hardness,
}
