"""Fusions: the stages that make one run of several (`fusions:`), and those that tune how on a split with labels."""

from typing import TYPE_CHECKING, Any, NamedTuple

from tandem.errors import Unavailable, UserError
from tandem.planning.graph import Stage
from tandem.planning.runs import cutoff

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver


class Method(NamedTuple):
    """Keys of a method of fusion: the one that is tuned where it is null, that of `tune` for it, and the others."""

    tuned: str
    tried: str
    kept: tuple[str, ...] = ()


METHODS = {"rrf": Method("k", "k"), "weighted": Method("weights", "step", ("normalize",))}


class Fusions:
    """The fusions of one configuration."""

    def __init__(self, resolver: "Resolver") -> None:
        self.of, self.config = resolver, resolver.config
        self.opened: list[str] = []

    def run(self, name: str, split: str, dataset: str) -> Stage:
        """The stage that fuses the runs of an entry on a split of a dataset."""
        told, depth = self.config["fusions"][name], self.depth(name, split, dataset)
        params = {"method": told["method"], "depth": depth, "split": split}
        upstream = self.parts(name, split, f"fusions.{name}.of", dataset)
        method = METHODS[told["method"]]
        params |= {key: told[key] for key in method.kept}
        if told[method.tuned] is None:
            upstream["tuned"] = self._tuned(name, dataset)
        else:
            params[method.tuned] = told[method.tuned]
        return self.of.stage("fuse", dataset, f"{name}.{split}", params, upstream=upstream)

    def parts(self, name: str, split: str, where: str, dataset: str) -> dict[str, Stage]:
        """The dataset and the runs that are fused, by role."""
        if name in self.opened:
            raise UserError(f"fusions form a cycle: {' -> '.join([*self.opened, name])}")
        self.opened.append(name)
        try:
            parts = [self.of.run(part, split, where, dataset) for part in self.config["fusions"][name]["of"]]
        finally:
            self.opened.pop()
        return {"dataset": self.of.dataset(dataset), **{f"run.{at}": part for at, part in enumerate(parts)}}

    def depth(self, name: str, split: str, dataset: str) -> int:
        """How many passages of a query are kept; a `UserError` where the scores of the split look deeper."""
        told, runs = self.config["fusions"][name]["depth"], self.of.runs
        if told is not None and split == runs.split(dataset):
            for measure in runs.measures(dataset):
                if cutoff(measure) > told:
                    found = f"fusions.{name}.depth is {told}, but {measure} looks deeper"
                    raise UserError(f"{found}; raise it, or set score.measures")
        return int(told or runs.depth(split, dataset))

    def _tuned(self, name: str, dataset: str) -> Stage:
        """The stage that tunes an entry's settings on a dataset."""
        params, split = self.tuning(name, dataset), self.config["fusions"][name]["tune"]["split"]
        upstream = self.parts(name, split, f"fusions.{name}.tune.split", dataset)
        return self.of.stage("tune_fusion", dataset, f"{name}.{split}", params, upstream=upstream)

    def tuning(self, name: str, dataset: str) -> dict[str, Any]:
        """How an entry is tuned; a `UserError` where that cannot be on this dataset."""
        told, spec, at = self.config["fusions"][name], self.of.dataset_spec(dataset), f"fusions.{name}"
        method, measure, split = METHODS[told["method"]], told["tune"]["measure"], told["tune"]["split"]
        if spec["relevance"] == "answers":
            found = f"{at}.{method.tuned} is null: to be tuned, but dataset {dataset} has answers and no qrels"
            raise Unavailable(f"{found}; set it")
        depth = self.depth(name, split, dataset)
        if cutoff(measure) > depth:
            found = f"{at}.tune.measure: {measure} looks deeper than the {depth} passages of a query on {split}"
            raise UserError(f"{found}; raise depth.{split}" + (f" and {at}.depth" if told["depth"] else ""))
        params: dict[str, Any] = {"method": told["method"], "depth": depth, "split": split, "measure": measure}
        params |= {method.tried: told["tune"][method.tried], **{key: told[key] for key in method.kept}}
        return params | ({"ignore_identical_ids": True} if spec["ignore_identical_ids"] else {})

    def require_depth(self, run: Stage, deepest: int, where: str) -> None:
        """Refuse to look deeper into a fused run than it goes."""
        if run.kind == "fuse" and deepest > run.params["depth"]:
            depth, name = run.params["depth"], run.name.rpartition(".")[0]
            raise UserError(f"{where} is {deepest}, but {name} goes only {depth} deep; raise fusions.{name}.depth")
