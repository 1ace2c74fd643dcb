"""Training lists: the stages that draw them and have a teacher score them, and whether what is asked can be had."""

from typing import TYPE_CHECKING, Any

from tandem.data.splits import UNLABELLED
from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.planning.schema import nearest

if TYPE_CHECKING:
    from tandem.planning.resolver import Resolver

RANDOM = "random"  # passages of the whole corpus instead of a run's
# Of `candidates`: what is a parameter of the stage.
DRAWN = ("first_rank", "depth", "negatives", "queries", "split", "labels", "bar_answers", "take", "negatives_per")


class Lists:
    """The training lists of one configuration's models."""

    def __init__(self, resolver: "Resolver") -> None:
        self.of, self.config = resolver, resolver.config

    def check(self, at: str, spec: dict[str, Any]) -> None:
        """Refuse lists that cannot be drawn or are shorter than what is trained on; joined lists likewise."""
        also = spec["candidates"]["also"]
        if also and spec["train"].get("distil"):
            raise UserError(f"{at}.train.distil: a teacher scores one set of lists; leave {at}.candidates.also out")
        if spec["candidates"]["from"] == RANDOM and spec["train"]["validate_every"]:
            raise UserError(f"{at}.train.validate_every: random is no run to validate on; use train.checkpoints")
        parts = {"candidates": spec["candidates"]} | {f"candidates.also.{i}": one for i, one in enumerate(also)}
        for place, told in parts.items():
            if place != "candidates" and told["also"]:
                raise UserError(f"{at}.{place}.also: lists are joined once; name them side by side")
            self._check_labels(f"{at}.{place}", told)
            self._check_size(at, place, told, spec["train"]["list_size"])

    def _check_labels(self, at: str, told: dict[str, Any]) -> None:
        """What labels need: a run to find answers in, a judge that names positives."""
        denoise = told["denoise"] or {}
        if told["labels"] == "judge" and (denoise.get("positive_above") is None or denoise["hybrid"]):
            raise UserError(f"{at}.labels is judge, which needs denoise.positive_above and no denoise.hybrid")
        if told["labels"] == "judge" and denoise["backfill"]:
            raise UserError(f"{at}.denoise.backfill: where the judge labels, unjudged passages are no negatives")
        if told["from"] == RANDOM and (told["labels"] != "qrels" or told["bar_answers"]):
            raise UserError(f"{at}.from is random, which finds no answers and leaves a judge no positive; name a run")

    def _check_size(self, at: str, place: str, told: dict[str, Any], size: int) -> None:
        """A list cannot be longer than its window, nor the window than the run."""
        window, depth = told["depth"] - told["first_rank"] + 1, self.config["depth"]
        split = "train" if told["split"] == UNLABELLED else told["split"]
        run, deepest = depth.get(split, depth["test"]), self._deepest(told)
        if deepest > run and told["from"] != RANDOM:
            raise UserError(
                f"{at}.{place}.depth is {deepest}, but {told['from']} retrieves only {run} passages per training "
                f"query; raise depth.{split} or lower {place}.depth"
            )
        available = window if told["negatives"] is None else min(window, told["negatives"])
        if size - 1 > available:
            raise UserError(
                f"{at}.train.list_size is {size}, but its {place} give at most {available} negatives per query; "
                f"raise {place}.depth (and {place}.negatives) or lower train.list_size"
            )

    def _deepest(self, told: dict[str, Any]) -> int:
        """The last rank that is looked at."""
        return int(max(told["depth"], ((told["denoise"] or {}).get("backfill") or {"depth": 0})["depth"]))

    def all(self, at: str, told: dict[str, Any], dataset: str) -> dict[str, Stage]:
        """The stages that draw a model's training lists, by role: `candidates`, and of joined ones `candidates.1`, …"""
        made = {"candidates": self.candidates(f"{at}.candidates", told, dataset)}
        for i, more in enumerate(told["also"], 1):
            made[f"candidates.{i}"] = self.candidates(f"{at}.candidates.also.{i - 1}", more, dataset)
        return made

    def candidates(self, at: str, told: dict[str, Any], dataset: str) -> Stage:
        """The stage that draws training lists; `at` is the key that tells how."""
        split, source, data = told["split"], told["from"], self.of.dataset(dataset)
        self.of.require_split(dataset, split, f"{at}: draws lists")
        pool = None if source == RANDOM else self.of.run(source, split, f"{at}.from", dataset)
        if pool is not None:
            self.of.fusions.require_depth(pool, self._deepest(told), f"{at}.depth")
        params = {key: told[key] for key in DRAWN} | {"seed": self.of.seed(told["seed"])}
        upstream: dict[str, Stage | None] = {"dataset": data, "run": pool}
        if pool is not None and (told["bar_answers"] or told["labels"] == "answers"):
            upstream["match"] = self._match(pool, split, dataset)
        if told["denoise"] is not None:
            denoise = dict(told["denoise"])
            judges = denoise.pop("by")
            params |= {"denoise": denoise, **self.scoring()}
            names = [judges] if isinstance(judges, str) else judges
            upstream |= self.of.ensembles.judges(names, f"{at}.denoise.by", dataset)
        upstream["tokens"] = self.of.tokens(self.config["encoder"], dataset)
        return self.of.stage("candidates", dataset, source, params, upstream=upstream)

    def _match(self, run: Stage, split: str, dataset: str) -> Stage:
        """The stage that finds the answers in a run, as its scores would."""
        how = {"match": self.of.dataset_spec(dataset)["match"], "depth": self.of.runs.depth(split, dataset)}
        upstream: dict[str, Stage | None] = {"dataset": self.of.dataset(dataset), "run": run}
        return self.of.stage("match", dataset, run.name, how | {"split": split, "title": False}, upstream=upstream)

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
        return self.of.stage("teacher", dataset, "-".join(names), self.scoring(), upstream=upstream)

    def _scores_pairs(self, name: str) -> bool:
        """Whether a name means a cross-encoder, or several, rather than a run."""
        if name in self.config["ensembles"]:
            return True
        spec = self.config["models"].get(self.of.named(name), {"objective": None})
        return spec["objective"] == "cross" or (spec["objective"] == "joint" and not name.endswith(".retriever"))

    def scoring(self) -> dict[str, Any]:
        """How cross-encoders score pairs: as in re-ranking, so that all who ask share the scores."""
        return {key: self.config["rerank"][key] for key in ("precision", "batch_tokens")}
