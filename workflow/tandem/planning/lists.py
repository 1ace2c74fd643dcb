"""Training lists: the stages that draw them and have a teacher score them, and whether what is asked can be had."""

from typing import TYPE_CHECKING, Any

from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.planning.schema import nearest

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver


class Lists:
    """The training lists of one configuration's models."""

    def __init__(self, resolver: "Resolver") -> None:
        self.of, self.config = resolver, resolver.config

    def check(self, at: str, spec: dict[str, Any]) -> None:
        """A list cannot be longer than its window, nor the window than the run."""
        told, size = spec["candidates"], spec["train"]["list_size"]
        window, run = told["depth"] - told["first_rank"] + 1, self.config["depth"]["train"]
        denoise = told["denoise"] or {}
        deepest = max(told["depth"], (denoise.get("backfill") or {"depth": 0})["depth"])
        if deepest > run:
            raise UserError(
                f"{at}.candidates.depth is {deepest}, but {told['from']} retrieves only {run} passages per training "
                "query; raise depth.train or lower candidates.depth"
            )
        available = window if told["negatives"] is None else min(window, told["negatives"])
        if size - 1 > available:
            raise UserError(
                f"{at}.train.list_size is {size}, but its candidates give at most {available} negatives per query; "
                "raise candidates.depth (and candidates.negatives) or lower train.list_size"
            )

    def candidates(self, at: str, told: dict[str, Any], dataset: str) -> Stage:
        """The stage that draws a model's training lists."""
        at = f"{at}.candidates"
        pool = self.of.run(told["from"], "train", f"{at}.from", dataset)
        deepest = max(told["depth"], ((told["denoise"] or {}).get("backfill") or {"depth": 0})["depth"])
        self.of.fusions.require_depth(pool, deepest, f"{at}.depth")
        params = {k: told[k] for k in ("first_rank", "depth", "negatives", "queries")} | {
            "split": "train",
            "seed": self.of.seed(told["seed"]),
        }
        encoder = self.config["encoder"]
        upstream: dict[str, Stage | None] = {"dataset": self.of.dataset(dataset), "run": pool}
        if told["denoise"] is not None:
            denoise = dict(told["denoise"])
            judges = denoise.pop("by")
            params |= {"denoise": denoise, **self._scoring()}
            names = [judges] if isinstance(judges, str) else judges
            upstream |= self.of.ensembles.judges(names, f"{at}.denoise.by", dataset)
        upstream["tokens"] = self.of.tokens(encoder, dataset)
        return self.of.stage("candidates", dataset, f"{told['from']}", params, upstream=upstream)

    def teacher(self, at: str, told: str | list[str], candidates: Stage, dataset: str) -> Stage:
        """The stage that scores a model's training lists: by a cross-encoder, several, an ensemble, or any run.

        Of a joint model alone, or as `<model>.reranker`, the cross-encoder teaches; as `<model>.retriever`, its run.
        """
        where = f"{at}.train.distil.from"
        upstream: dict[str, Stage | None] = {"dataset": self.of.dataset(dataset), "candidates": candidates}
        if isinstance(told, str) and not self._scores_pairs(told):
            named = ("models", "runs", "sparse", "fusions", "aggregations", "ensembles")
            known = [*(name for key in named for name in self.config[key]), "bm25", "given"]
            if not {"+", "@"} & set(told) and self.of.named(told) not in known and told.split(".")[0] != "bm25":
                raise UserError(f"{where}: {told} is neither a model nor a run{nearest(told, known)}")
            upstream["run"] = self.of.run(told, "train", where, dataset)
            return self.of.stage("teacher", dataset, told, {}, upstream=upstream)
        names = [told] if isinstance(told, str) else told
        upstream |= self.of.ensembles.judges(names, where, dataset)
        return self.of.stage("teacher", dataset, "-".join(names), self._scoring(), upstream=upstream)

    def _scores_pairs(self, name: str) -> bool:
        """Whether a name means a cross-encoder, or several, rather than a run."""
        if name in self.config["ensembles"]:
            return True
        spec = self.config["models"].get(self.of.named(name), {"objective": None})
        return spec["objective"] == "cross" or (spec["objective"] == "joint" and not name.endswith(".retriever"))

    def _scoring(self) -> dict[str, Any]:
        """How cross-encoders score pairs: as in re-ranking, so that all who ask share the scores."""
        return {key: self.config["rerank"][key] for key in ("precision", "batch_tokens")}
