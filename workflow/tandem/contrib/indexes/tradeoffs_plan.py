"""The stage that measures indexes against one another."""

from tandem.config.indexes import ExactTermIndex, SeismicIndex, SeismicSearch
from tandem.contrib.indexes.tradeoffs_options import Tradeoffs
from tandem.errors import UserError
from tandem.plan.context import json_of, plans_view
from tandem.plan.dataset_stages import require_split
from tandem.plan.graph import Stage
from tandem.plan.plan import Check, View
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


@plans_view("tradeoffs")
class TradeoffsView(View):
    """The comparison of indexes by recall, latency and size."""

    rules = ("index_tradeoffs",)
    tables = ("index_tradeoffs",)

    def targets(self) -> dict[str, list[Check]]:
        """See `View.targets`."""
        return {"index_tradeoffs": [self.stage]}

    def everything(self) -> list[Check]:
        """See `View.everything`."""
        return [self.stage]

    @property
    def options(self) -> Tradeoffs:
        """What is compared."""
        return self.plan.settings.section("tradeoffs", Tradeoffs)

    def stage(self) -> Stage:
        """Return the stage that measures indexes against one another: recall, latency and size."""
        data, ctx = self.plan.settings.dataset, self.plan.planner.ctx
        options = self.options
        split = options.split or self.plan.split
        require_split(ctx, data, split, "tradeoffs.split: queries are asked")

        def is_plain(run: str) -> bool:
            return "+" not in run and "@" not in run

        model = options.model or self.plan.choose_run("de_bm25neg", is_plain)
        params = json_of(options) | {"split": split}
        representation = dual_encoder(ctx, model, "tradeoffs.model").params.representation
        if representation.encoding == "term_weights":
            return self._plan_terms(model, split, params)

        upstream = encode_both_sides(
            ctx, representation.encoding, model, split, "tradeoffs.model", data
        )
        for name in options.indexes:
            find_vector_index(ctx, name, "tradeoffs.indexes")
        for i, name in enumerate(options.indexes):
            upstream[f"index.{i}"] = plan_index(ctx, upstream["passages"], name, data)
        execution = ctx.execution("index_gpu", "devices")
        return ctx.stage("tradeoffs", data, f"{model}.{split}", params, upstream, execution)

    def _plan_terms(self, model: str, split: str, params: Json) -> Stage:
        """Return the stage that measures indexes of weights of terms against one another."""
        data, ctx = self.plan.settings.dataset, self.plan.planner.ctx
        # of vectors
        params = {key: value for key, value in params.items() if key not in ("indexes", "sweep")}
        upstream = plan_impacts(ctx, model, split, "tradeoffs.model", data)
        params["seismic"] = []
        for name in self.options.indexes:
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
