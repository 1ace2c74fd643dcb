"""The audits of a dataset as stages: what they look at, who judges."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.data.select import order
from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.planning.runs import CROSS_PARTS
from tandem.planning.window_datasets import UNSPACED
from tandem.store.files import fingerprint

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver


class Audits:
    """The audits of one configuration."""

    def __init__(self, resolver: "Resolver") -> None:
        self.of, self.config = resolver, resolver.config

    def trained(self, dataset: str) -> bool:
        """Whether the configuration's models can be trained for a dataset."""
        splits = self.of.splits(self.config["train_on"] or dataset)
        return splits is None or "train" in splits

    def judges(self, dataset: str) -> dict[str, Stage | None]:
        """The audits' cross-encoders and their token ids; none where they cannot be trained or the models lack them."""
        names = self.of.ensembles.members(self.config["audits"]["judges"]) if self.trained(dataset) else []
        made: dict[str, Stage | None] = {}
        for i, name in enumerate(name for name in names if self.of.named(name) in self.config["models"]):
            made[f"judge.{i}"] = self.of.model(name, "audits.judges", CROSS_PARTS)
            made[f"judge_tokens.{i}"] = self.of.tokens(self.of.root(self.of.named(name), "cross"), dataset)
        return made

    def audited(self, dataset: str) -> list[str]:
        """The systems whose runs are looked at: those of `audits.systems` that can be had."""
        told: list[str] = self.config["audits"]["systems"]
        trained = self.trained(dataset)
        return [name for name in told if all(self._there(part, trained) for part in name.split("+"))]

    def _there(self, part: str, trained: bool) -> bool:
        """Whether a part of a system can be had; models only if they can be trained, fusions if their runs can."""
        for key in ("fusions", "ensembles"):
            if part in self.config[key]:
                parts = (one for name in self.config[key][part]["of"] for one in name.split("+"))
                return all(self._there(one, trained) for one in parts)
        if told := self.config["aggregations"].get(part):
            return all(self._there(one, trained) for one in (*told["of"].split("+"), *filter(None, [told["by"]])))
        if self.of.sparse.names(part) or part in self.config["runs"]:
            return True
        return trained and self.of.named(part.partition("@")[0]) in self.config["models"]

    def similar_queries(self, dataset: str) -> Stage:
        """The audit of training queries that are similar to others."""
        told, upstream = self.config["audits"], {"dataset": self.of.dataset(dataset), **self.judges(dataset)}
        there = self.of.splits(dataset) or {"train", "dev", "test"}
        others = sorted(there - {"train"}, key=order)
        retriever = told["retriever"]
        if self.trained(dataset) and retriever and self.of.named(retriever) in self.config["models"]:
            for split in ("train", *others):
                upstream[f"vectors.{split}"] = self.of.runs.queries(retriever, split, "audits.retriever", dataset)
        params = {**told["similar_queries"], "splits": others, **self._scoring()}
        return self.of.stage("similar_queries", dataset, "similar", params, upstream=upstream)

    def false_negatives(self, dataset: str) -> Stage:
        """The audit of unlabelled passages that a judge finds relevant."""
        split = self.of.runs.split(dataset)
        told = {key: value for key, value in self.config["audits"]["false_negatives"].items() if key != "sheet"}
        upstream = {"dataset": self.of.dataset(dataset), **self._audited_runs(split, dataset), **self.judges(dataset)}
        params = {**told, "split": split, **self._scoring()}
        return self.of.stage("false_negatives", dataset, f"unlabelled.{split}", params, upstream=upstream)

    def relabel(self, dataset: str) -> Stage:
        """The qrels after the audit: the annotators' where there is a sheet, else the judge's verdict."""
        told, pool = self.config["audits"]["false_negatives"], self.false_negatives(dataset)
        params, how = {"split": self.of.runs.split(dataset), "threshold": told["threshold"]}, {}
        if told["sheet"] is not None:
            if not Path(told["sheet"]).is_file():
                raise UserError(f"audits.false_negatives.sheet is {told['sheet']}; no such file")
            params["fingerprint"], how["path"] = fingerprint(Path(told["sheet"])), told["sheet"]
        upstream = {"dataset": self.of.dataset(dataset), "pool": pool}
        return self.of.stage("relabel", dataset, pool.name, params, upstream=upstream, **how)

    def noise(self, dataset: str) -> Stage:
        """The audit of duplicates, overlap between splits and unjudged results."""
        language = self.of.dataset_spec(dataset)["language"]
        shingle = {"unit": "characters", "size": 5} if language in UNSPACED else {"unit": "words", "size": 3}
        split = self.of.runs.split(dataset)
        params = {**self.config["audits"]["noise"], "shingle": shingle, "split": split, "seed": self.config["seed"]}
        upstream = {"dataset": self.of.dataset(dataset), **self._audited_runs(split, dataset)}
        return self.of.stage("noise", dataset, f"noise.{split}", params, upstream=upstream)

    def _audited_runs(self, split: str, dataset: str) -> dict[str, Stage]:
        systems = self.audited(dataset)
        return {f"run.{i}": self.of.run(name, split, "audits.systems", dataset) for i, name in enumerate(systems)}

    def _scoring(self) -> dict[str, Any]:
        return {key: self.config["rerank"][key] for key in ("precision", "batch_tokens")}

    def all(self, dataset: str) -> list[Stage]:
        """Every audit that a dataset allows, and the scores that show the effect of new labels."""
        made = [self.noise(dataset), self.false_negatives(dataset)]
        if (splits := self.of.splits(dataset)) is None or "train" in splits:
            made.append(self.similar_queries(dataset))
        given: list[dict[str, Stage]] = [{}]
        # Where answers tell what is relevant there are no labels to correct.
        labelled = self.of.dataset_spec(dataset)["relevance"] == "qrels"
        if labelled and (self.judges(dataset) or self.config["audits"]["false_negatives"]["sheet"]):
            subset = self.false_negatives(dataset)
            given += [{"subset": subset}, {"subset": subset, "labels": self.relabel(dataset)}]
        systems = self.audited(dataset)
        return made + [
            self.of.runs.score(name, "audits.systems", dataset, **more) for name in systems for more in given
        ]
