"""Runs and their scores: which stages write and measure the run that an expression names.

`bm25`; `bm25.<analyzer>` (the same with another analyzer); `given` (the dataset's own training lists); a name of
`sparse:` (a variant of bm25), `runs:` (a file somebody released), `fusions:` or `aggregations:`; a dual encoder,
searched exactly, or `<dual encoder>@<name of indexes:>`; `<first stage>+<cross-encoder or name of ensembles:>`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.data.select import UNLABELLED
from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.store.files import fingerprint

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver

DUAL_PARTS, CROSS_PARTS = ("dual", "joint"), ("cross", "joint")
NO_QRELS = ("Success", "RR", "P")  # measures that do not ask how many relevant passages there are


def cutoff(measure: str) -> int:
    """The rank a measure looks down to: 10 of `nDCG@10`; 1 where it names none."""
    _, at, rank = measure.partition("@")
    return int(rank) if at and rank.isdigit() else 1


class Runs:
    """The runs of one configuration's systems."""

    def __init__(self, resolver: "Resolver") -> None:
        self.of, self.config = resolver, resolver.config

    def run(self, system: str, split: str, where: str, dataset: str) -> Stage:
        """The stage that writes a system's run on a split of a dataset; `where` names the key that asked for it."""
        self.of.require_split(dataset, split, f"{where}: searches")
        first, plus, judge = system.rpartition("+")
        if plus:
            return self._rerank(system, first, judge, split, where, dataset)
        if "@" in system:
            return self.of.indexed.run(system, split, where, dataset)
        if self.of.sparse.names(system):
            return self.of.sparse.run(system, split, where, dataset)
        if system == "given":
            params = {"depth": self.depth(split, dataset), "split": split}
            return self.of.stage(
                "given", dataset, f"given.{split}", params, upstream={"dataset": self.of.dataset(dataset)}
            )
        if system in self.config["aggregations"]:
            return self.of.windowed.run(system, split, where, dataset)
        if system in self.config["runs"]:
            return self._imported(system, split, dataset)
        if system in self.config["fusions"]:
            return self.of.fusions.run(system, split, dataset)
        return self._retrieve(system, split, where, dataset)

    def depth(self, split: str, dataset: str) -> int:
        """How deep runs on a split go; the split that is reported and further test sets as deep as `test`."""
        depth: dict[str, int] = self.config["depth"]
        split = "train" if split == UNLABELLED else split  # its queries are trained on
        told = depth["test"] if split == self.split(dataset) else depth.get(split, depth["test"])
        return told * int(self.of.dataset_spec(dataset).get("factor", 1))  # several windows of a document may be found

    def _imported(self, system: str, split: str, dataset: str) -> Stage:
        told = self.config["runs"][system]
        path = Path(told["paths"].get(split, ""))
        if not path.is_file():
            have = ", ".join(told["paths"])
            raise UserError(f"runs.{system}.paths.{split}: {path} is no file; splits with a file: {have or 'none'}")
        params = {
            "format": told["format"],
            "split": split,
            "depth": self.depth(split, dataset),
            "fingerprint": fingerprint(path),
        }
        upstream = {"dataset": self.of.dataset(dataset)}
        return self.of.stage("imported", dataset, f"{system}.{split}", params, upstream=upstream, path=str(path))

    def queries(self, system: str, split: str, where: str, dataset: str) -> Stage:
        """The stage that embeds a split's queries by a dual encoder."""
        model = self.of.model(system, where, DUAL_PARTS)
        encode = {k: self.config["encode"][k] for k in ("block", "batch_tokens", "precision")}
        params = {"side": "queries", "split": split, **encode}
        upstream = self._encoded(model, system, dataset)
        return self.of.stage("embeddings", dataset, f"{model.name}.{split}", params, upstream=upstream, **self._how())

    def _how(self) -> dict[str, Any]:
        """How embeddings are computed; it is part of no key."""
        return {key: self.config["execution"][key] for key in ("attention", "compile")}

    def _encoded(self, model: Stage, system: str, dataset: str) -> dict[str, Any]:
        # By the system's name: an equal model of another variant may have lent the stage its own.
        tokens = self.of.tokens(self.of.root(self.of.named(system), "dual"), dataset)
        return {"dataset": self.of.dataset(dataset), "model": model, "tokens": tokens}

    def vectors(self, system: str, split: str, where: str, dataset: str) -> dict[str, Stage | None]:
        """What a dual encoder's retrieval reads: the dataset, its passages' vectors and those of a split's queries."""
        model = self.of.model(system, where, DUAL_PARTS)
        encode = {k: self.config["encode"][k] for k in ("block", "batch_tokens", "precision", "dtype")}
        passages = self.of.stage(
            "embeddings", dataset, f"{model.name}.passages", {"side": "passages", **encode},
            upstream=self._encoded(model, system, dataset), **self._how(),
        )  # fmt: skip
        queries = self.queries(system, split, where, dataset)
        return {"dataset": self.of.dataset(dataset), "passages": passages, "queries": queries}

    def _retrieve(self, system: str, split: str, where: str, dataset: str) -> Stage:
        name = self.of.model(system, where, DUAL_PARTS).name
        params = {"depth": self.depth(split, dataset), "split": split}
        upstream = self.vectors(system, split, where, dataset)
        how = {key: self.config["execution"][key] for key in ("engine", "search_memory")}
        return self.of.stage("retrieve", dataset, f"{name}.{split}", params, upstream=upstream, **how)

    def _rerank(self, system: str, first: str, judge: str, split: str, where: str, dataset: str) -> Stage:
        pool, params = self.run(first, split, where, dataset), self.reranking(split, dataset)
        self.of.fusions.require_depth(pool, params["depth"], "rerank.depth")
        upstream = {"dataset": self.of.dataset(dataset), "run": pool}
        if judge in self.config["ensembles"]:
            upstream |= self.of.ensembles.judges([judge], where, dataset)
        else:
            upstream["model"] = self.of.model(judge, where, CROSS_PARTS)
            upstream["tokens"] = self.of.tokens(self.of.root(self.of.named(judge), "cross"), dataset)
        return self.of.stage("rerank", dataset, f"{system}.{split}", params, upstream=upstream)

    def reranking(self, split: str, dataset: str) -> dict[str, Any]:
        """How cross-encoders re-rank a run; a `UserError` if runs on the split are not that deep."""
        told, depth = self.config["rerank"], self.depth(split, dataset)
        if told["depth"] > depth:
            raise UserError(
                f"rerank.depth is {told['depth']}, but runs on {split} are {depth} deep; raise depth.{split}"
            )
        return dict(told)

    def split(self, dataset: str) -> str:
        """The split whose scores are reported: `score.split`, else the dataset's `score_split`, else test, else dev."""
        told = self.config["score"]["split"] or self.of.dataset_spec(dataset)["score_split"]
        if told:
            return str(told)
        there = self.of.splits(dataset)
        return "dev" if there is not None and "test" not in there and "dev" in there else "test"

    def measures(self, dataset: str) -> list[str]:
        """What is measured: `score.measures`, else the dataset's own, else the usual that its runs and labels allow.

        Raises:
            UserError: a measure that looks deeper than the runs go.
        """
        spec, depth = self.of.dataset_spec(dataset), self.depth(self.split(dataset), dataset)
        told = self.config["score"]["measures"] or spec.get("measures")
        for name in self.config["score"]["measures"] or ():
            if cutoff(name) > depth:
                raise UserError(f"score.measures: {name} looks deeper than the runs go ({depth}); raise depth.test")
        if told:
            return [name for name in told if cutoff(name) <= depth]
        counted = spec["relevance"] == "qrels"
        usual = [name for name in self.config["score"]["usual"] if cutoff(name) <= depth]
        return [name for name in usual if counted or name.split("@")[0] in NO_QRELS]

    def score(self, system: str, where: str, dataset: str, **given: Stage | None) -> Stage:
        """The stage that measures a system's run.

        Args:
            system: the run's expression.
            where: the key that asked for it.
            dataset: where the search happens; a group is measured on each member and averaged.
            given: `labels`, whose qrels replace the dataset's; `subset`, to whose queries the score is restricted.
        """
        spec, split = self.of.dataset_spec(dataset), self.split(dataset)
        params: dict[str, Any] = {"measures": self.measures(dataset), "split": split}
        if spec["source"] == "group":
            parts = {f"member.{i}": self.score(system, where, name) for i, name in enumerate(spec["of"])}
            return self.of.stage(
                "score", dataset, f"{system}.{split}", params | {"members": spec["of"]}, upstream=parts
            )
        return self.measured(system, where, dataset, params, **given)

    def measured(self, system: str, where: str, dataset: str, told: dict[str, Any], **given: Stage | None) -> Stage:
        """The same for one dataset and any split; `told` are the measures and the split."""
        spec, split, params = self.of.dataset_spec(dataset), told["split"], dict(told)
        run, data = self.run(system, split, where, dataset), self.of.dataset(dataset)
        if spec["ignore_identical_ids"]:
            params["ignore_identical_ids"] = True
        upstream: dict[str, Stage | None] = {"dataset": data, "run": run, **given}
        if spec["relevance"] == "answers":
            how = {"match": spec["match"], "depth": self.depth(split, dataset), "split": split, "title": False}
            upstream["match"] = self.of.stage("match", dataset, run.name, how, upstream={"dataset": data, "run": run})
        return self.of.stage("score", dataset, run.name, params, upstream=upstream)
