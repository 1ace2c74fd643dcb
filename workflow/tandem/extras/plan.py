"""The plan with what the papers' tables do not need: the trade-offs of indexes.

The rules of extras.smk and the commands that look at everything a configuration could ask for use this plan; the core
plans without it.
"""

from contextlib import suppress
from pathlib import Path

from tandem.config.indexes import ExactTermIndex, SeismicIndex, SeismicSearch
from tandem.config.merging import Raw
from tandem.errors import UserError
from tandem.plan.context import json_of
from tandem.plan.dataset_stages import require_split
from tandem.plan.graph import Stage
from tandem.plan.plan import Check, Plan
from tandem.plan.searches import (
    encode_both_sides,
    find_index,
    find_vector_index,
    plan_impacts,
    plan_index,
    plan_seismic,
)
from tandem.plan.starting_encoders import dual_encoder
from tandem.stages.base import Json


class FullPlan(Plan):
    """Everything that any target asks."""

    def __init__(self, raw: Raw, root: Path, views: str = "results") -> None:
        super().__init__(raw, root, views)
        self.catalogue = self.settings.model_dump(mode="json", exclude_unset=True)["datasets"]

    def targets(self) -> dict[str, list[Check]]:
        """Return target of the command line → what must be possible for it."""
        return super().targets() | {
            "datasets": [],
            "estimate": [],
            "index_tradeoffs": [self.tradeoffs],
        }

    def tradeoffs(self) -> Stage:
        """Return the stage that measures indexes against one another: recall, latency and size."""
        entry, data, ctx = self.settings.tradeoffs, self.settings.dataset, self.planner.ctx
        split = entry.split or self.split
        require_split(ctx, data, split, "tradeoffs.split: queries are asked")

        def is_plain(run: str) -> bool:
            return "+" not in run and "@" not in run

        model = entry.model or self.choose_run("de_bm25neg", is_plain)
        params = json_of(entry) | {"split": split}
        representation = dual_encoder(ctx, model, "tradeoffs.model").params.representation
        if representation.encoding == "term_weights":
            return self._plan_term_tradeoffs(model, split, params)

        upstream = encode_both_sides(
            ctx, representation.encoding, model, split, "tradeoffs.model", data
        )
        for name in entry.indexes:
            find_vector_index(ctx, name, "tradeoffs.indexes")
        for i, name in enumerate(entry.indexes):
            upstream[f"index.{i}"] = plan_index(ctx, upstream["passages"], name, data)
        execution = ctx.execution("index_gpu", "devices")
        return ctx.stage("tradeoffs", data, f"{model}.{split}", params, upstream, execution)

    def _plan_term_tradeoffs(self, model: str, split: str, params: Json) -> Stage:
        """Return the stage that measures indexes of weights of terms against one another."""
        entry, data, ctx = self.settings.tradeoffs, self.settings.dataset, self.planner.ctx
        # of vectors
        params = {key: value for key, value in params.items() if key not in ("indexes", "sweep")}
        upstream = plan_impacts(ctx, model, split, "tradeoffs.model", data)
        params["seismic"] = []
        for name in entry.indexes:
            built = find_index(ctx, name, "tradeoffs.indexes")
            if isinstance(built, ExactTermIndex):
                raise UserError(
                    f"tradeoffs.indexes: {name} ranks by other weights than all others; leave it out"
                )
            if isinstance(built, SeismicIndex):
                number = len(params["seismic"])
                params["seismic"].append(
                    {"name": name, **json_of(built, *SeismicSearch.model_fields)}
                )
                upstream[f"seismic.{number}"] = plan_seismic(
                    ctx, upstream, f"{model}@{name}", built, data
                )
        return ctx.stage("term_tradeoffs", data, f"{model}.{split}", params, upstream)

    def check_file(self, target: str) -> None:
        """See `Plan.check_file`."""
        if target.endswith("/stage.json"):
            self.plan_every_target()
        super().check_file(target)

    def plan_every_target(self) -> None:
        """Plan whatever else exists as a target, as far as possible: a job's own process only knows its key."""
        super().plan_every_target()
        with suppress(UserError):
            self.tradeoffs()
