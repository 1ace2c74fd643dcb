"""Training lists: the stages that draw them from a run, and whether what is asked of them can be had."""

from typing import TYPE_CHECKING, Any

from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.planning.runs import CROSS_PARTS

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
        params = {k: told[k] for k in ("first_rank", "depth", "negatives", "queries")} | {
            "split": "train",
            "seed": self.of.seed(told["seed"]),
        }
        encoder = self.config["encoder"]
        upstream: dict[str, Stage | None] = {"dataset": self.of.dataset(dataset), "run": pool}
        if told["denoise"] is not None:
            denoise = dict(told["denoise"])
            judges = denoise.pop("by")
            params |= {"denoise": denoise, "precision": self.config["rerank"]["precision"]}
            params["batch_tokens"] = self.config["rerank"]["batch_tokens"]
            for i, judge in enumerate([judges] if isinstance(judges, str) else judges):
                upstream[f"judge.{i}"] = self.of.model(judge, f"{at}.denoise.by", CROSS_PARTS)
                upstream[f"judge_tokens.{i}"] = self.of.tokens(self.of.root(self.of.named(judge), "cross"), dataset)
        upstream["tokens"] = self.of.tokens(encoder, dataset)
        return self.of.stage("candidates", dataset, f"{told['from']}", params, upstream=upstream)
