"""Plan the stage that compares indexes with one another."""

from tandem.config.representations import Representation
from tandem.contrib.indexes.options import FAISS_INDEXES, FaissIndex
from tandem.errors import Unavailable, UserError
from tandem.extras.planning import choose_run
from tandem.extras.searched_indexes import plans_comparison
from tandem.extras.tradeoffs_options import Tradeoffs
from tandem.plan.context import json_of, plans_view
from tandem.plan.dataset_stages import require_split
from tandem.plan.graph import Stage
from tandem.plan.plan import Check, View
from tandem.plan.searches import encode_both_sides, find_vector_index, plan_index
from tandem.plan.starting_encoders import dual_encoder


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
        """Return the options of the comparison."""
        return self.plan.settings.section("tradeoffs", Tradeoffs)

    def stage(self) -> Stage:
        """Return the stage that compares indexes by recall, latency and size."""
        data, ctx = self.plan.settings.dataset, self.plan.planner.ctx
        options = self.options
        split = options.split or self.plan.split
        require_split(ctx, data, split, "tradeoffs.split: queries are asked")

        def read_representation(model: str) -> Representation:
            representation: Representation = dual_encoder(
                ctx, model, "tradeoffs.model"
            ).params.representation
            return representation

        def is_measured(run: str) -> bool:
            is_plain = "+" not in run and "@" not in run
            return is_plain and not read_representation(run).matches_tokens

        model = options.model or choose_run(self.plan, "de_bm25neg", is_measured)
        params = json_of(options) | {"split": split}
        representation = read_representation(model)
        if representation.matches_tokens:
            why = (
                f"{model} compares vectors of the same token, and an index does not know which are"
            )
            raise Unavailable(f"tradeoffs.model: {why}; name another model")
        encoding = representation.encoding
        if encoding in plans_comparison:
            return plans_comparison[encoding](ctx, options, model, split)

        upstream = encode_both_sides(ctx, encoding, model, split, "tradeoffs.model", data)
        for name in options.indexes:
            entry = find_vector_index(ctx, name, "tradeoffs.indexes")
            if not isinstance(entry, FaissIndex):
                why = f"{name} is of type {entry.type}, whose index its own stage alone reads"
                types = ", ".join(FAISS_INDEXES)
                raise UserError(f"tradeoffs.indexes: {why}; name indexes of the types {types}")
        search = {
            "depth": max(options.k),
            "rescore": True in options.sweep.rescore,
            "rescore_factor": options.sweep.rescore_factor,
        }
        for i, name in enumerate(options.indexes):
            upstream[f"index.{i}"] = plan_index(ctx, upstream["passages"], name, data, search)
        execution = ctx.execution("index_gpu", "devices")
        return ctx.stage("tradeoffs", data, f"{model}.{split}", params, upstream, execution)
