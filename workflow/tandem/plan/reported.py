"""Decide on which split, to which depth and by which measures runs on a dataset are reported."""

from collections.abc import Iterable

from tandem.config.datasets import UNLABELLED, CutDocuments
from tandem.config.retrieval import Depth
from tandem.errors import UserError, nearest
from tandem.plan.context import Context
from tandem.plan.dataset_stages import may_have_split, splits
from tandem.stages.base import Json
from tandem.stages.evaluation import OF_THE_TOP


def check_measure_names(where: str, measures: Iterable[str]) -> None:
    """Refuse an unknown measure; `where` begins the error, usually the key that names it."""
    # Imported here: not every environment that imports this module has ir_measures.
    from tandem.evaluation.measure_names import parse_measures

    try:
        parse_measures(list(measures))
    except UserError as error:
        raise UserError(f"{where}: {str(error).removeprefix('measures: ')}") from None


def reported_split(ctx: Context, name: str) -> str:
    """Return the split that is reported: `score.split`, else the dataset's `score_split`, else test, else dev."""
    chosen = ctx.settings.score.split or ctx.dataset_entry(name).score_split
    return chosen or usual_split(ctx, name)


def usual_split(ctx: Context, name: str) -> str:
    """Return the split that is reported if no key names one: test, else dev."""
    known = splits(ctx, name) or {"test"}
    # dev was taken from train: it is not a split of the dataset's own
    is_drawn = name in ctx.notices
    has_dev_alone = "dev" in known and "test" not in known
    return "dev" if has_dev_alone and not is_drawn else "test"


def check_reported_split(ctx: Context) -> None:
    """Refuse a `score.split` that, as far as known, neither the configured dataset nor a stand-in has.

    Without `score.split`, check the dataset's own `score_split` in the same way.
    """
    settings = ctx.settings
    split, where = settings.score.split, "score.split"
    if split is None:
        split = getattr(ctx.datasets.get(settings.dataset), "score_split", None)
        where = f"datasets.{settings.dataset}.score_split"
    if split is None:
        return
    searched = [settings.dataset]
    if isinstance(settings.stand_in, str):
        searched.append(settings.stand_in)
    elif settings.stand_in:
        searched += settings.stand_in.values()
    known = [name for name in searched if name in ctx.datasets]
    if not known or any(may_have_split(ctx, name, split) for name in known):
        return
    have = sorted(splits(ctx, settings.dataset) or ())
    others = [
        name
        for name, entry in ctx.datasets.items()
        if split in (getattr(entry, "splits", None) or ())
    ]
    hint = f"; split {split} is in {', '.join(others)}" if others else nearest(split, have)
    raise UserError(
        f"{where} is {split}, but dataset {settings.dataset} has {', '.join(have)}{hint}"
    )


def find_depth_key(ctx: Context, split: str, name: str) -> str:
    """Return the key of `depth` that counts for a split: `test` for the one that is reported and further test sets."""
    if split == UNLABELLED:  # its queries are trained on
        split = "train"
    is_test = split == reported_split(ctx, name) or split not in Depth.model_fields
    return "test" if is_test else split


def run_depth(ctx: Context, split: str, name: str) -> int:
    """Return how deep runs on a split go, by the key that `find_depth_key` names."""
    passages: int = getattr(ctx.settings.depth, find_depth_key(ctx, split, name))
    entry = ctx.dataset_entry(name)
    # a search may find several windows of a document
    windows = entry.factor if isinstance(entry, CutDocuments) else 1
    return passages * windows


def searched(ctx: Context, split: str, name: str) -> Json:
    """Return the parameters that all searches share: the split, and how deep runs on it go."""
    return {"split": split, "depth": run_depth(ctx, split, name)}


def cutoff(measure: str) -> int:
    """Return the rank that a measure looks down to: 10 of `nDCG@10`.

    It is 0 where a measure names none, as `IPrec@0.5`, whose @ is a recall.
    """
    rank = measure.partition("@")[2]
    return int(rank) if rank.isdigit() else 0


def suits(ctx: Context, measure: str, name: str) -> bool:
    """Return whether a dataset's labels allow a measure; answers allow only measures of the top k."""
    if ctx.dataset_entry(name).relevance == "qrels":
        return True
    base = measure.split("@")[0]
    return base in OF_THE_TOP and cutoff(measure) > 0


def require_suitable(ctx: Context, where: str, measure: str, name: str) -> None:
    """Refuse a measure that does not suit the sort of a dataset's labels."""
    if not suits(ctx, measure, name):
        allowed = ", ".join(f"{base}@k" for base in OF_THE_TOP)
        raise UserError(
            f"{where}: {measure} needs qrels, but dataset {name} has answers; allowed: {allowed}"
        )


def is_measurable(ctx: Context, measure: str, name: str) -> bool:
    """Return whether runs on a dataset are deep enough for a measure, and its labels are of the right sort."""
    depth = run_depth(ctx, reported_split(ctx, name), name)
    return cutoff(measure) <= depth and suits(ctx, measure, name)


def measures(ctx: Context, name: str) -> list[str]:
    """Return the measures of a dataset: `score.measures`, else its own, else those of `score.usual` that suit it.

    Raises:
        UserError: a measure that looks deeper than the runs go, or needs labels of another sort; usual ones are left
            out instead, unless none remains.
    """
    score = ctx.settings.score
    depth = run_depth(ctx, reported_split(ctx, name), name)
    of_dataset = ctx.dataset_entry(name).measures
    if score.measures:
        where = "score.measures"
        suitable = list(score.measures)
    elif of_dataset:
        where = f"datasets.{name}.measures"
        suitable = list(of_dataset)
    else:
        where = "score.usual"
        suitable = [measure for measure in score.usual if suits(ctx, measure, name)]

    for measure in suitable or score.usual:
        require_suitable(ctx, where, measure, name)
    deep = [measure for measure in suitable if cutoff(measure) > depth]
    if deep and (score.measures or deep == suitable):
        raise UserError(
            f"{where}: {deep[0]} looks deeper than the runs go ({depth}); raise depth.test"
        )
    return [measure for measure in suitable if measure not in deep]
