"""Plan runs on broken queries that are turned into runs on the original queries; check self-teaching's dataset."""

from tandem.config.models import DualModel, ModelEntry
from tandem.contrib.robustness.options import Perturbed, PerturbedRun
from tandem.data.splits import VALIDATED
from tandem.errors import Unavailable, UserError, printable
from tandem.extras.planning import require_own_split
from tandem.plan.context import Context, checks_entry, checks_training, plans_dataset, plans_run
from tandem.plan.dataset_stages import dataset, make_dataset
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references
from tandem.plan.reported import run_depth
from tandem.plan.run_expressions import run


def _find_entry(ctx: Context, name: str) -> PerturbedRun:
    return ctx.settings.entries("perturbed", PerturbedRun)[name]


@plans_dataset("perturbed")
def plan_perturbed(ctx: Context, name: str, entry: Perturbed) -> Stage:
    """Return the stage of a dataset with broken copies of a split's queries."""
    made_of = plan_references(ctx, entry, f"datasets.{name}", Scope(name, VALIDATED))
    require_own_split(ctx, name, entry.of, entry.split)
    further = {"excludes_own": True} if entry.ignore_identical_ids else {}
    return make_dataset(ctx, name, entry, made_of, further)


@plans_run("perturbed")
def plan_perturbed_run(ctx: Context, name: str, split: str, where: str, data: str) -> Stage:
    """Plan a run on broken queries that is turned into a run on the original queries."""
    entry = _find_entry(ctx, name)
    at = f"perturbed.{name}"
    broken = ctx.dataset_entry(entry.dataset, f"{at}.dataset")
    if not isinstance(broken, Perturbed):
        raise UserError(
            f"{at}.dataset is {printable(entry.dataset)}, which is not a dataset of source perturbed"
        )
    if entry.kind not in broken.kinds:
        kinds = ", ".join(broken.kinds)
        raise UserError(
            f"{at}.kind is {entry.kind}, but datasets.{entry.dataset}.kinds has {kinds}"
        )
    if broken.of != data:
        raise UserError(
            f"{where}: {name} is on queries of {broken.of} ({entry.dataset}), not of {data}"
        )
    if broken.split != split:
        raise Unavailable(
            f"{where}: {name} is on split {split}, but {entry.dataset} breaks {broken.split} alone"
        )

    broken_split = f"{split}_{entry.kind}"
    with ctx.opening("perturbed", name):
        inputs = plan_references(ctx, entry, at, Scope(entry.dataset, broken_split))
    params = {
        "split": split,
        "depth": run_depth(ctx, broken_split, entry.dataset),
        "kind": entry.kind,
    }
    upstream = {"dataset": dataset(ctx, data), **inputs}
    return ctx.stage("restore_queries", data, f"{name}.{split}", params, upstream)


@checks_entry("perturbed")
def check_perturbed_run(ctx: Context, name: str) -> None:
    """Refuse an entry that cannot be planned on the split that its dataset breaks."""
    dataset_name = _find_entry(ctx, name).dataset
    broken = ctx.dataset_entry(dataset_name)
    data = getattr(broken, "of", dataset_name)
    split = getattr(broken, "split", "test")
    dataset(ctx, dataset_name)  # refuses a split that does not exist
    run(ctx, name, split, f"perturbed.{name}", data)


@checks_training("self_teaching")
def check_self_teaching(ctx: Context, at: str, entry: ModelEntry, data: str) -> None:
    """Refuse self-teaching on a dataset without broken copies of its training queries."""
    teaching = entry.train.self_teaching if isinstance(entry, DualModel) else None
    if teaching is None:
        return
    broken = ctx.dataset_entry(data)
    if not isinstance(broken, Perturbed) or broken.split != "train":
        problem = f"{data} has no broken training queries; train on a dataset of source perturbed, of split train"
        raise UserError(f"{at}.train.self_teaching: {problem}")
    for lists in (entry.candidates, *entry.candidates.also):
        if lists.split != "train":
            raise UserError(
                f"{at}.train.self_teaching: lists are of split {lists.split}, whose queries are not broken"
            )
    for kind in teaching.kinds:
        if kind not in broken.kinds:
            have = ", ".join(broken.kinds)
            raise UserError(
                f"{at}.train.self_teaching.kinds names {kind}, but datasets.{data}.kinds has {have}"
            )
