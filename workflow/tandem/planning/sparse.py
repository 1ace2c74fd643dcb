"""BM25 and its variants: which stages index, tune and search.

`bm25` and `bm25.<analyzer>` are the configuration's `bm25`; a name of `sparse:` is a variant of it, which may be tuned,
expanded by RM3, searched over fields, scored by another formula or by another engine.
"""

from typing import TYPE_CHECKING, Any

from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.planning.runs import cutoff
from tandem.planning.schema import NAME, nearest, shown
from tandem.stages.lexical import ANALYZERS, ENGINES, FORMULAS, LANGUAGES, SPLIT_BEFORE, WITHOUT_JAVA

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver

TAKEN = ("bm25", "given", "encoder")  # names that mean something else, as do those under these keys
RUNS = ("models", "runs", "fusions", "ensembles", "aggregations")
ENGLISH = ("default", "porter")  # analyzers of bm25s that stem
PLAIN: dict[str, Any] = {
    **dict.fromkeys(("engine", "analyzer", "k1", "b", "rm3", "fields", "delta")),
    **{"tuned": False, "formula": "lucene"},
}


class Sparse:
    """BM25 and the variants of one configuration."""

    def __init__(self, resolver: "Resolver") -> None:
        self.of, self.config = resolver, resolver.config

    def names(self, system: str) -> bool:
        """Whether an expression names BM25 or a variant."""
        return system not in self.config["models"] and (
            system.partition(".")[0] == "bm25" or system in self.config["sparse"]
        )

    def run(self, system: str, split: str, where: str, dataset: str) -> Stage:
        """The stage that writes the run of BM25 or of a variant."""
        if system in self.config["sparse"]:
            return self._searched(system, f"sparse.{system}", self.config["sparse"][system], split, dataset)
        analyzer = system.partition(".")[2]
        if analyzer and analyzer not in ANALYZERS:
            raise UserError(f"{where}: bm25.{analyzer} has an unknown analyzer{nearest(analyzer, list(ANALYZERS))}")
        usual = self._analyzer(PLAIN, dataset)
        name = "bm25" if analyzer in ("", usual) else system
        return self._searched(name, "bm25", PLAIN | {"analyzer": analyzer or None}, split, dataset)

    def _searched(self, name: str, at: str, told: dict[str, Any], split: str, dataset: str) -> Stage:
        """The stage that searches, `told` being a variant's keys and `at` their path in the configuration."""
        engine, data = self._engine(told), self.of.dataset(dataset)
        index = self._index(at, told, dataset)
        upstream: dict[str, Stage | None] = {"dataset": data, engine: index}
        how = _how(told)
        params: dict[str, Any] = {"depth": self.of.runs.depth(split, dataset), "split": split, **how}
        if told["tuned"]:
            upstream["tuned"] = self._tuned(name, at, how, upstream, dataset)
        else:
            params |= {key: self.config["bm25"][key] if told[key] is None else told[key] for key in ("k1", "b")}
        return self.of.stage("bm25", dataset, f"{name}.{split}", params, upstream=upstream)

    def _index(self, at: str, told: dict[str, Any], dataset: str) -> Stage:
        """The index that a variant searches; variants share what they agree on."""
        engine, language = self._engine(told), self.of.dataset_spec(dataset)["language"]
        how: dict[str, Any] = {"analyzer": self._analyzer(told, dataset), "language": language}
        if how["analyzer"] not in SPLIT_BEFORE:
            self._check_language(at, engine, how["analyzer"], language, dataset)
        if engine == "lucene":
            how |= {"vectors": True} if told["rm3"] else {}
            how |= {"fields": True} if told["fields"] else {}
        elif how["analyzer"] not in WITHOUT_JAVA:
            raise UserError(
                f"{at}.analyzer is {how['analyzer']}, which bm25s lacks; allowed: {', '.join(WITHOUT_JAVA)}"
            )
        return self.of.stage(engine, dataset, how["analyzer"], how, upstream={"dataset": self.of.dataset(dataset)})

    def _tuned(self, name: str, at: str, how: dict[str, Any], upstream: dict[str, Stage | None], dataset: str) -> Stage:
        """The stage that chooses k1 and b, searching as the variant does."""
        told, spec = self.config["bm25"]["tune"], self.of.dataset_spec(dataset)
        if spec["relevance"] == "answers":
            raise UserError(f"{at}.tuned needs qrels; dataset {dataset} has answers")
        self.of.require_split(dataset, told["split"], f"{at}: is tuned")
        deepest = self.of.runs.depth(told["split"], dataset)
        params = told | how | {"depth": cutoff(told["measure"]) if "@" in told["measure"] else deepest}
        if spec["ignore_identical_ids"]:
            params["ignore_identical_ids"] = True
        return self.of.stage("tune_bm25", dataset, f"{name}.{told['split']}", params, upstream=dict(upstream))

    def _engine(self, told: dict[str, Any]) -> str:
        return str(told["engine"] or self.config["bm25"]["engine"])

    def _analyzer(self, told: dict[str, Any], dataset: str) -> str:
        """A variant's own analyzer, else the configuration's, else the dataset's."""
        return str(told["analyzer"] or self.config["bm25"]["analyzer"] or self.of.dataset_spec(dataset)["analyzer"])

    def _check_language(self, at: str, engine: str, analyzer: str, language: str, dataset: str) -> None:
        """Refuse a language that the analyzer cannot have."""
        if engine == "lucene" and language not in LANGUAGES:
            known = f"allowed: {', '.join(LANGUAGES)}, or any with analyzer whitespace or jieba"
            raise UserError(
                f"datasets.{dataset}.language is {shown(language)}, which Lucene has no analyzer for; {known}"
            )
        if engine == "bm25s" and analyzer in ENGLISH and language != "en":
            allowed = f"set {at}.analyzer to none, whitespace or jieba"
            raise UserError(
                f"datasets.{dataset}.language is {shown(language)}, and bm25s stems English alone; {allowed}"
            )

    def check(self, name: str) -> None:
        """Refuse a variant whose name is taken or whose keys do not go together."""
        told, at = self.config["sparse"][name], f"sparse.{name}"
        engine = self._engine(told)
        if not NAME.fullmatch(name):
            raise UserError(f"{at}: a name is letters, digits, '_', '-' and '.'")
        if name in TAKEN or name.startswith("bm25.") or any(name in self.config[key] for key in RUNS):
            named = ", ".join(("bm25", "bm25.…", "given", *RUNS))
            raise UserError(f"{at} has the name of another run ({named}); name it otherwise")
        if engine == "bm25s" and (asked := next((key for key in ("rm3", "fields") if told[key]), None)):
            raise UserError(f"{at}.{asked} needs Lucene, but the engine is bm25s; set {at}.engine to {ENGINES[0]}")
        if engine == "lucene" and told["formula"] != "lucene":
            raise UserError(f"{at}.formula is {told['formula']}, which Lucene lacks; set {at}.engine to bm25s")
        if told["rm3"] and told["fields"]:
            raise UserError(f"{at} has rm3 and fields; RM3 reads passages as a whole, leave one of them out")
        if told["delta"] is not None and FORMULAS[told["formula"]] is None:
            raise UserError(f"{at}.delta is of bm25+ and bm25l, but formula is {told['formula']}; leave it out")
        if told["tuned"] and (asked := next((key for key in ("k1", "b") if told[key] is not None), None)):
            raise UserError(f"{at}.{asked} is told, but {at}.tuned chooses it; leave one of them out")


def _how(told: dict[str, Any]) -> dict[str, Any]:
    """What of a variant's keys decides how is searched: none of plain BM25's, whose stages keep their keys."""
    made = {key: told[key] for key in ("rm3", "fields") if told[key]}
    if (delta := FORMULAS[told["formula"]]) is not None:
        made |= {"formula": told["formula"], "delta": delta if told["delta"] is None else told["delta"]}
    return made
