"""The datasets of sources `cropped_sentences`, `joined` and `union` as stages."""

from tandem.contrib.formats.options import CroppedSentences, Joined, UnionDataset
from tandem.data.splits import VALIDATED
from tandem.extras.planning import require_own_split
from tandem.plan.context import Context, plans_dataset
from tandem.plan.dataset_stages import find_base, make_dataset
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references


@plans_dataset("cropped_sentences")
def plan_sentences(ctx: Context, name: str, entry: CroppedSentences) -> Stage:
    """Return the stage of a dataset whose queries are sentences of its passages."""
    at = f"datasets.{name}"
    find_base(at, entry)
    return make_dataset(ctx, name, entry, plan_references(ctx, entry, at, Scope(name, VALIDATED)))


@plans_dataset("joined")
def plan_joined(ctx: Context, name: str, entry: Joined) -> Stage:
    """Return the stage of a dataset of long documents, which may have its queries by position."""
    made_of = plan_references(ctx, entry, f"datasets.{name}", Scope(name, VALIDATED))
    if entry.positions:
        require_own_split(ctx, name, entry.of, entry.split)
    further = {"excludes_own_document": True} if entry.ignore_identical_ids else {}
    return make_dataset(ctx, name, entry, made_of, further)


@plans_dataset("union")
def plan_union(ctx: Context, name: str, entry: UnionDataset) -> Stage:
    """Return the stage of several datasets as one, whose ids begin with the datasets' names."""
    made_of = plan_references(ctx, entry, f"datasets.{name}", Scope(name, VALIDATED))
    return make_dataset(ctx, name, entry, made_of, {"names": list(entry.of)})
