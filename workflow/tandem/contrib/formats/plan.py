"""The datasets of sources `cropped_sentences`, `joined`, `pair` and `union` as stages."""

from collections.abc import Iterable

from tandem.config.datasets import Dataset
from tandem.contrib.formats.options import CroppedSentences, Joined, Pair, UnionDataset
from tandem.data.splits import VALIDATED
from tandem.errors import UserError
from tandem.extras.planning import require_own_split
from tandem.plan.context import Context, plans_dataset
from tandem.plan.dataset_stages import find_base, make_dataset
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references


@plans_dataset("cropped_sentences")
def plan_sentences(ctx: Context, name: str, entry: CroppedSentences) -> Stage:
    """Plan the stage of a dataset whose queries are sentences of its passages."""
    at = f"datasets.{name}"
    find_base(at, entry)
    return make_dataset(ctx, name, entry, plan_references(ctx, entry, at, Scope(name, VALIDATED)))


@plans_dataset("joined")
def plan_joined(ctx: Context, name: str, entry: Joined) -> Stage:
    """Plan the stage of a dataset of long documents, which may also have its queries by position."""
    made_of = plan_references(ctx, entry, f"datasets.{name}", Scope(name, VALIDATED))
    if entry.positions:
        require_own_split(ctx, name, entry.of, entry.split)
    further = {"excludes_own": True} if entry.ignore_identical_ids else {}
    return make_dataset(ctx, name, entry, made_of, further)


@plans_dataset("pair")
def plan_pair(ctx: Context, name: str, entry: Pair) -> Stage:
    """Plan the stage of the queries of one dataset over the passages of another."""
    made_of = plan_references(ctx, entry, f"datasets.{name}", Scope(name, VALIDATED))
    _require_language(ctx, name, entry, [entry.corpus_of])
    return make_dataset(ctx, name, entry, made_of)


@plans_dataset("union")
def plan_union(ctx: Context, name: str, entry: UnionDataset) -> Stage:
    """Plan the stage of several datasets as one, whose ids begin with the datasets' names."""
    made_of = plan_references(ctx, entry, f"datasets.{name}", Scope(name, VALIDATED))
    _require_language(ctx, name, entry, entry.of)
    return make_dataset(ctx, name, entry, made_of, {"names": list(entry.of)})


def _require_language(ctx: Context, name: str, entry: Dataset, sources: Iterable[str]) -> None:
    """Refuse a dataset that does not state its language, by which BM25 splits texts, if its passages' is another."""
    languages = {of: ctx.dataset_entry(of).language for of in sources}
    if "language" in entry.model_fields_set or {*languages.values()} == {entry.language}:
        return
    have = ", ".join(f"{of} is {language}" for of, language in languages.items())
    raise UserError(
        f"datasets.{name}.language is needed, as the passages' is not {entry.language}: {have}"
    )
