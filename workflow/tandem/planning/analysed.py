"""The analyses behind the notebooks as stages: whose wrong results, which joint model, which models' training lists."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.planning.schema import nearest, shown

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver

TABLE = "dureader_retrieval/table10"  # made from the sheet of wrong results, not from a layout


class Analyses:
    """The analyses of one configuration."""

    def __init__(self, resolver: "Resolver") -> None:
        self.of, self.config = resolver, resolver.config
        self.told: dict[str, Any] = resolver.config["analysis"]
        # Notebook → what it shows.
        self.notebooks = {
            "error_analysis": self.errors,
            "distillation_dynamics": self.dynamics,
            "negatives": self.hardness,
        }

    def stage(self, notebook: str) -> Stage:
        """What a notebook shows; a `UserError` if the configuration lacks a model or a split that it needs."""
        try:
            return self.notebooks[notebook]()
        finally:
            self.of.opened.clear()

    def files(self) -> list[str]:
        """The executed notebooks; a `UserError` if one of them has nothing to show."""
        return [f"results/notebooks/{name}-{self.stage(name).dataset}.ipynb" for name in self.notebooks]

    def tables(self, paper: str) -> list[str]:
        """The file of a paper's table that is made from an analysis, if it has one and its system is there."""
        if not TABLE.startswith(f"{paper}/"):
            return []
        try:
            self.stage("error_analysis")
        except UserError:
            return []
        return [f"results/tables/{TABLE}.csv"]

    def errors(self) -> Stage:
        """The wrong results of a system, on the split that is reported."""
        told, dataset = self.told["errors"], self.config["dataset"]
        at, split = "analysis.errors", self.of.runs.split(dataset)
        if told["top"] > (deepest := self.of.runs.depth(split, dataset)):
            raise UserError(f"{at}.top is {told['top']}, but runs on {split} are {deepest} deep; raise depth.test")
        # What is relevant is told as for the system's score: by qrels, or by answers that its run was matched with.
        score = self.of.runs.score(told["system"], f"{at}.system", dataset)
        upstream = {role: score.upstream.get(role) for role in ("dataset", "run", "match")}
        params = {"split": split, "top": told["top"], "queries": told["queries"]}
        return self.of.stage("errors", dataset, score.name, params, upstream=upstream)

    def sheet(self) -> str | None:
        """The annotators' filled sheet of wrong results, if there is one."""
        told = self.told["errors"]["sheet"]
        if told is not None and not Path(told).is_file():
            raise UserError(f"analysis.errors.sheet is {shown(told)}; no such file")
        return None if told is None else str(told)

    def dynamics(self) -> Stage:
        """A joint model's score distributions at its start, its checkpoints if it has any, and its end."""
        at, told = "analysis.dynamics.model", self.told["dynamics"]
        model = self.of.model(told["model"], at, ("joint",))
        if model.kind != "model":
            raise UserError(f"{at}: {told['model']} is a checkpoint; name its model, all of them are looked at")
        points = self.of.validated.chains.get(self.of.named(told["model"]), [model])
        roles = ("dataset", "candidates", "tokens", "cross_tokens", "retriever", "reranker")
        upstream = {role: points[0].upstream[role] for role in roles}
        upstream |= {f"point.{i}": point for i, point in enumerate(points)}
        train = model.params["train"]
        params = {
            "queries": told["queries"],
            "list_size": train["list_size"],
            "seed": train["seed"],
            **self.of.lists.scoring(),
        }
        params["encode"] = {key: self.config["encode"][key] for key in ("precision", "batch_tokens")}
        return self.of.stage("dynamics", model.dataset, model.name, params, upstream=upstream)

    def hardness(self) -> Stage:
        """The negatives of some models' training lists, and what judges say of them."""
        at, told = "analysis.negatives", self.told["negatives"]
        names = [name for name in told["of"] if self.of.named(name) in self.config["models"]]
        if not names:
            raise UserError(
                f"{at}.of: no model has one of these names{nearest(told['of'][0], list(self.config['models']))}"
            )
        lists = [self._lists(name, f"{at}.of") for name in names]
        dataset = lists[0].dataset
        if other := [one.dataset for one in lists if one.dataset != dataset]:
            raise UserError(
                f"{at}.of: {names[0]} is trained on {dataset}, another on {other[0]}; compare one dataset's"
            )
        upstream = {"dataset": lists[0].upstream["dataset"]} | {f"candidates.{i}": one for i, one in enumerate(lists)}
        there = partial(filter, lambda name: self.of.named(name) in self.config["models"])
        judges = self.of.ensembles.judges(
            list(there(self.of.ensembles.members(told["judges"]))), f"{at}.judges", dataset
        )
        drawn_from = [self.config["models"][self.of.named(name)]["candidates"]["from"] for name in names]
        params = {"models": names, "drawn_from": drawn_from, "queries": told["queries"], "threshold": told["threshold"]}
        params |= self.of.lists.scoring() if judges else {}
        return self.of.stage("hardness", dataset, "negatives", params, upstream=upstream | judges)

    def _lists(self, name: str, where: str) -> Stage:
        """The stage that drew a model's training lists."""
        model = self.of.model(name, where)
        return self.of.validated.chains.get(self.of.named(name), [model])[0].upstream["candidates"]
