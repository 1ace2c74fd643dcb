"""The dataset of source `cropped_sentences` as a stage."""

from tandem.contrib.formats.options import CroppedSentences
from tandem.data.splits import VALIDATED
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
