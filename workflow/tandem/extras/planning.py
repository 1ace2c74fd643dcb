"""What packages need to plan and the core does not: depths, splits, notes and suitable runs."""

from collections.abc import Callable, Iterable, Iterator

from tandem.config.datasets import Dataset
from tandem.config.references import inherited_notes, names_in
from tandem.errors import UserError, printable
from tandem.extras.copied_splits import CopiesSplits
from tandem.plan.context import Context
from tandem.plan.dataset_stages import may_have_split, splits
from tandem.plan.graph import Stage
from tandem.plan.plan import Plan
from tandem.plan.reported import cutoff, find_depth_key, reported_split
from tandem.stages.base import Json

# Notes of an entry about a dataset's files; they do not hold for a dataset that is made of it.
NOTES_OF_FILES = ("counts", "bytes", "access", "where", "mteb")
# Notes that do not hold, either, for a dataset with other passages or queries.
NOTES_OF_THE_WHOLE = (*NOTES_OF_FILES, "measures", "score_split")


def notes_of(entry: Dataset, without: tuple[str, ...] = ()) -> Json:
    """Return the notes of a dataset's entry, which a dataset made of it takes over."""
    notes: Json = {}
    for key in inherited_notes(type(entry)):
        value = getattr(entry, key, None)
        if value is not None and key not in without:
            notes[key] = value
    return notes


def require_own_split(ctx: Context, name: str, of: str, split: str) -> None:
    """Refuse a key `split` of a dataset that names no split of the dataset it is made of, where these are known."""
    known = splits(ctx, of)
    if known is not None and split not in known:
        have = ", ".join(sorted(known))
        raise UserError(f"datasets.{name}.split is {printable(split)}, but dataset {of} has {have}")


def require_deep(
    ctx: Context, where: str, measure: str, depth: int, split: str, data: str, more: str = ""
) -> None:
    """Refuse a measure that looks deeper than the runs on a split; `more` names a further key that may be raised."""
    if cutoff(measure) > depth:
        problem = f"{where}: {measure} looks deeper than the {depth} passages of a query on {split}"
        raise UserError(f"{problem}; raise depth.{find_depth_key(ctx, split, data)}{more}")


def why_on_no_split(ctx: Context, data: str, plan: Callable[[str], object]) -> list[UserError]:
    """Return one reason per split why something can be planned on no split of a dataset; nothing if one split works.

    For example, a released run may have a file for a single split.
    """
    reasons = []
    for split in (reported_split(ctx, data), "dev", "train"):
        try:
            plan(split)
            return []
        except UserError as error:
            reasons.append(error)
    return reasons


def choose_run(plan: Plan, usual: str, suits: Callable[[str], bool]) -> str:
    """Return the usual run if the configuration has it, else the first suitable run of its own trained models."""
    ctx = plan.planner.ctx
    if ctx.has_run(usual):
        return usual
    for run in plan.own_runs():
        if ctx.trained_model(run.split("+")[0]) and suits(run):
            return run
    return usual


def split_groups(stages: Iterable[Stage]) -> Iterator[Stage]:
    """Yield stages; the score of a group, and of groups within it, is replaced by the scores of its datasets."""
    for stage in stages:
        inputs = stage.upstream.values()
        members = [member for member in inputs if member.declared.holds == "scores"]
        if stage.declared.holds == "scores" and members:
            yield from split_groups(members)
        else:
            yield stage


def find_originals(ctx: Context, name: str, split: str) -> set[str]:
    """Return the splits whose queries, or copies of them, a split of a dataset has, through all that it is made of."""
    entry = ctx.dataset_entry(name)
    if isinstance(entry, CopiesSplits):
        split = entry.map_copies().get(split, split)
    # by the kind of thing that a key names: `queries_of` of SQuAD's format names files
    made_of = {
        key.path.rpartition(".")[2]: key.names
        for key in names_in(entry, "")
        if key.reference.to == "dataset"
    }
    originals: set[str] = set()
    for member in made_of.get("of") or made_of.get("queries_of", ()):
        if may_have_split(ctx, member, split):
            originals |= find_originals(ctx, member, split)
    return originals or {split}
