"""Aggregated runs (`aggregations:`): runs over windows of long documents, made into runs over the documents.

`of: <run>` is searched over the windows and aggregated. With `by: <cross-encoder>` it is searched over the documents,
and the cross-encoder scores the windows of its top documents.
"""

from typing import TYPE_CHECKING, Any

from tandem.errors import Unavailable, UserError
from tandem.planning.graph import Stage
from tandem.planning.origins import NAME
from tandem.planning.schema import nearest, shown

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver

K, MISSING = ("kmax",), ("sum", "kmax")  # methods that `k` and `missing` mean something to
OTHERS = ("models", "runs", "ensembles")  # where the configuration names what else a run may be; `fusions` looks itself


class Windowed:
    """The aggregated runs of one configuration."""

    def __init__(self, resolver: "Resolver") -> None:
        self.of, self.config = resolver, resolver.config
        self.told: dict[str, dict[str, Any]] = self.config["aggregations"]
        self.opened: list[str] = []

    def run(self, name: str, split: str, where: str, dataset: str) -> Stage:
        """The stage that writes an aggregated run over the documents of `dataset`; `where` asked for it."""
        told, make = self.told[name], self._aggregated if self.told[name]["by"] is None else self._rescored
        documents = self._documents(name)
        if documents != dataset:
            raise UserError(f"{where}: {name} searches windows of {documents} ({told['windows']}), not of {dataset}")
        if name in self.opened:
            raise UserError(f"aggregations form a cycle: {' -> '.join([*self.opened, name])}")
        self.opened.append(name)
        try:
            return make(name, split, dataset)
        finally:
            self.opened.pop()

    def _documents(self, name: str) -> str:
        """The dataset whose windows an entry names."""
        datasets, named = self.config["datasets"], self.told[name]["windows"]
        windows = [one for one, spec in datasets.items() if spec["source"] == "windows"]
        if named not in windows:
            found = f"aggregations.{name}.windows is {shown(named)}, which is no dataset of source windows"
            raise UserError(f"{found}{nearest(named, windows)}")
        return str(datasets[named]["of"])

    def _aggregated(self, name: str, split: str, dataset: str) -> Stage:
        """A run over the windows, aggregated."""
        told = self.told[name]
        run = self.of.run(told["of"], split, f"aggregations.{name}.of", told["windows"])
        params = {**self._method(told), "depth": self.of.runs.depth(split, dataset), "split": split}
        if told["method"] in MISSING:
            # A sum over hundreds of lowest scores would be about the length of a document.
            params["missing"] = told["missing"] or ("zero" if told["method"] == "sum" else "lowest")
        upstream = {**self._datasets(told, dataset), "run": run}
        return self.of.stage("aggregate", dataset, f"{name}.{split}", params, upstream=upstream)

    def _rescored(self, name: str, split: str, dataset: str) -> Stage:
        """A run over the documents, whose windows cross-encoders score."""
        told, at = self.told[name], f"aggregations.{name}"
        run = self.of.run(told["of"], split, f"{at}.of", dataset)
        params = {**self._method(told), **self.of.runs.reranking(split, dataset), "split": split}
        self.of.fusions.require_depth(run, params["depth"], "rerank.depth")
        # Most logits are negative: their sum would be the lower the more windows a document has.
        params["scores"] = told["scores"] or ("probability" if told["method"] == "sum" else "raw")
        judges = self.of.ensembles.judges([told["by"]], f"{at}.by", told["windows"])
        upstream = {**self._datasets(told, dataset), "run": run, **judges}
        return self.of.stage("rerank_windows", dataset, f"{name}.{split}", params, upstream=upstream)

    def _datasets(self, told: dict[str, Any], dataset: str) -> dict[str, Stage]:
        """The documents and their windows, by role."""
        return {"dataset": self.of.dataset(dataset), "windows": self.of.dataset(told["windows"])}

    @staticmethod
    def _method(told: dict[str, Any]) -> dict[str, Any]:
        """The method's parameters that mean something to it."""
        return {"method": told["method"]} | ({"k": told["k"]} if told["method"] in K else {})

    def check(self, name: str) -> None:
        """Refuse an entry that makes no sense, wanted or not."""
        at, told = f"aggregations.{name}", self.told[name]
        taken = [key for key in OTHERS if name in self.config[key]]
        if not NAME.fullmatch(name):
            raise UserError(f"{at}: a name is letters, digits, '_', '-' and '.'")
        if taken or name == "given" or name.split(".")[0] == "bm25" or self.of.named(name) in self.config["models"]:
            raise UserError(f"{at} has the name of another run ({taken[0] if taken else name}); name it otherwise")
        if told["by"] is None and told["scores"] is not None:
            raise UserError(f"{at}.scores is {told['scores']}, but there is no {at}.by: only its scores can be turned")
        if told["by"] is not None and told["missing"] is not None:
            raise UserError(f"{at}.missing is {told['missing']}, but {at}.by scores every window; leave it out")
        self._check_runs(name, self._documents(name))

    def _check_runs(self, name: str, dataset: str) -> None:
        """The run that is aggregated must be there on one of the splits: a released run may have a single file."""
        wrong: list[UserError] = []
        for split in (self.of.runs.split(dataset), "dev", "train"):
            try:
                self.run(name, split, f"aggregations.{name}", dataset)
                return
            except Unavailable:
                continue
            except UserError as error:
                wrong.append(error)
        if wrong:
            raise wrong[0]
