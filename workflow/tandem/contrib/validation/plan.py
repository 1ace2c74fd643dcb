"""Plan how models are validated: within their training, or by other jobs, a checkpoint at a time on a reduced dataset.

Also list the keys about validation that have no effect.
"""

import re
from dataclasses import dataclass

from tandem.config.base import Section
from tandem.config.models import Validation
from tandem.config.retrieval import OnSplits
from tandem.config.settings import Settings
from tandem.contrib.validation.options import Reduced
from tandem.data.splits import VALIDATED
from tandem.errors import UserError
from tandem.extras.planning import NOTES_OF_THE_WHOLE, notes_of
from tandem.plan.candidate_lists import is_source
from tandem.plan.context import Context, lists_unused_keys, plans_dataset, plans_inputs, plans_run
from tandem.plan.dataset_stages import dataset, make_dataset, may_have_split, require_split
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references
from tandem.plan.reported import cutoff, find_depth_key, require_suitable, run_depth
from tandem.plan.run_expressions import run
from tandem.plan.scoring import score
from tandem.plan.searches import encode_both_sides
from tandem.plan.trainings import PARTS_OF_OBJECTIVE


def validation_of(ctx: Context, name: str) -> Validation:
    """Return how a model's checkpoints are validated: the configuration's `validation`, the model's own over it."""
    return ctx.settings.validation.overridden(ctx.settings.models[name].validation)


def reference(ctx: Context, name: str) -> str:
    """Return the run whose top is validated on.

    It is `validation.from`, else the run that negatives come from if it is one of dev queries, too, else BM25.
    """
    own = validation_of(ctx, name).from_
    if own:
        return own
    source = ctx.settings.models[name].candidates.from_
    block = ctx.block_of(source, plans_run)
    entry = ctx.settings.entries(block, Section)[source] if block else None
    lacks_dev = isinstance(entry, OnSplits) and not entry.has_split(VALIDATED)
    return "bm25" if is_source(source) or source == "given" or lacks_dev else source


def name_reference_key(ctx: Context, name: str) -> str:
    """Return the key that names the run of `reference`, for messages: the model's own, or the configuration's."""
    is_from_all = ctx.settings.validation.from_ and not ctx.settings.models[name].validation.from_
    return "validation.from" if is_from_all else f"models.{name}.validation.from"


@plans_inputs("validates")
def plan_validation_run(ctx: Context, name: str, data: str) -> dict[str, Stage]:
    """Plan the run of dev queries on whose lists a training validates itself.

    Return nothing if it cannot: training queries are then set apart.
    """
    if ctx.dataset_entry(data).relevance != "qrels" or not may_have_split(ctx, data, VALIDATED):
        return {}
    where = name_reference_key(ctx, name)
    return {"validation": run(ctx, reference(ctx, name), VALIDATED, where, data)}


@dataclass(frozen=True)
class Validated:
    """A checkpoint of a model's part, `dual` or `cross`, and the stage of its value on the reduced dataset."""

    model: str
    part: str
    checkpoint: Stage
    reduced: Stage

    @property
    def row(self) -> dict[str, str]:
        """Return its names and the folders of its stages, for a command line."""
        folders = {"checkpoint": self.checkpoint.folder, "reduced": self.reduced.folder}
        return {"model": self.model, "part": self.part, **folders}


def check_checkpoints(ctx: Context, name: str, data: str, count: int) -> None:
    """Refuse checkpoints whose names are taken, that cannot be validated, or that outnumber the steps."""
    validation = validation_of(ctx, name)
    train = ctx.settings.models[name].train
    if train.choose == "dev":
        what = f"models.{name}.train.choose is dev and checkpoints is {count}: they are validated"
        require_split(ctx, data, VALIDATED, what)
    if train.steps is not None and train.steps < count:
        raise UserError(
            f"models.{name}.train.checkpoints is {count}, but there are only {train.steps} steps"
        )
    # the start is checkpoint 0 where it may be the best
    first = 0 if train.choose == "dev" else 1
    for other in ctx.settings.models:
        model, _, number = other.rpartition(".")
        if model != name or not number.isdecimal() or number != str(int(number)):
            continue  # no checkpoint of this model has such a name
        if first <= int(number) <= count:
            raise UserError(
                f"models.{other} has the name of checkpoint {number} of models.{name}; name it otherwise"
            )
    deepest = run_depth(ctx, VALIDATED, data)
    if cutoff(validation.measure) > deepest:
        key = find_depth_key(ctx, VALIDATED, data)
        raise UserError(
            f"validation.measure: {validation.measure} looks deeper than runs on {VALIDATED} go ({deepest}); "
            f"raise depth.{key}"
        )
    require_suitable(ctx, "validation.measure", validation.measure, data)
    if validation.method == "average_rank" and ctx.dataset_entry(data).relevance == "answers":
        raise UserError(
            f"validation.method is average_rank, which needs qrels; dataset {data} has answers"
        )


def is_validated(ctx: Context, name: str) -> bool:
    """Return whether checkpoints are validated: if the best is taken, or if there are queries to validate on."""
    entry = ctx.settings.models[name]
    if not entry.train.checkpoints:
        return False
    return entry.train.choose == "dev" or may_have_split(ctx, ctx.trained_on(entry), VALIDATED)


@lists_unused_keys("validation")
def list_unused_validation_keys(settings: Settings) -> list[str]:
    """Return a line for each key about validation that is set but not read.

    `validation` is read only for checkpoints; `train` has keys for trainings that validate themselves, and `patience`,
    which ends those of which dev chooses the weights.
    """
    lines: list[str] = []
    for name in settings.models:
        lines += _list_unused_train_keys(settings, name)

    without_checkpoints = [
        name for name, model in settings.models.items() if not model.train.checkpoints
    ]
    unread: list[tuple[str, str, str]] = []  # path of a section, key, why
    for name in without_checkpoints:
        why = f"models.{name}.train.checkpoints is null"
        for key in settings.models[name].validation.model_fields_set - {"from_"}:
            unread.append((f"models.{name}.validation", key, why))
    if len(without_checkpoints) == len(settings.models):
        for key in settings.validation.model_fields_set - {"from_"}:
            unread.append(("validation", key, "no model has train.checkpoints"))
    return lines + [f"{at}.{key} has no effect: {why}" for at, key, why in sorted(unread)]


def _list_unused_train_keys(settings: Settings, name: str) -> list[str]:
    """Return a line for each key of a model's `train` about validation that is set but not read."""
    train = settings.models[name].train
    at = f"models.{name}.train"
    idle = [] if train.validates else ["validation_queries", "validation_depth"]
    if train.patience and (train.checkpoints or train.choose == "last"):
        idle.append("patience")
    why = (
        f"{at}.checkpoints is {train.checkpoints}"
        if train.checkpoints
        else f"{at}.choose is {train.choose}"
    )
    return [f"{at}.{key} has no effect: {why}" for key in idle if key in train.model_fields_set]


def reduced_dataset(ctx: Context, name: str) -> str:
    """Return the name of the reduced dataset that a model's checkpoints are validated on.

    The dataset is added to the others if it is missing.
    """
    validation = validation_of(ctx, name)
    base = ctx.trained_on(ctx.settings.models[name])
    source = reference(ctx, name)
    # a mistake in it is named by the key that the user wrote, not by the entry that is made below
    run(ctx, source, VALIDATED, name_reference_key(ctx, name), base)
    words = [base, "reduced", source, str(validation.depth)]
    if validation.others:
        words.append(f"others{validation.others}")
    if validation.queries:
        words.append(f"queries{validation.queries}")
    label = re.sub(r"[^\w.-]", "-", "-".join(words))
    entry = Reduced(
        source="reduced",
        of=base,
        from_=source,
        depth=validation.depth,
        others=validation.others,
        dev_queries=validation.queries,
        **notes_of(ctx.dataset_entry(base), NOTES_OF_THE_WHOLE),
    )
    ctx.enter_dataset(label, entry, "validation")
    return label


def reduced_value(ctx: Context, name: str, number: int, part: str) -> Stage:
    """Return the stage that validates a checkpoint on the reduced dataset."""
    validation = validation_of(ctx, name)
    data = reduced_dataset(ctx, name)
    where = f"models.{name}.validation"
    system = f"{name}.{number}"
    if part == "dual" and validation.method == "average_rank":
        upstream = encode_both_sides(ctx, "embeddings", system, VALIDATED, where, data)
        params = {
            "split": VALIDATED,
            "ignore_identical_ids": ctx.dataset_entry(data).ignore_identical_ids,
        }
        return ctx.stage("average_rank", data, f"{system}.{VALIDATED}", params, upstream)
    system = f"given+{system}" if part == "cross" else system
    return score(ctx, system, where, data, [validation.measure], VALIDATED)


@plans_dataset("reduced")
def plan_reduced(ctx: Context, name: str, entry: Reduced) -> Stage:
    """Return the stage of a reduced dataset: the reference run decides which passages are kept."""
    deepest = run_depth(ctx, VALIDATED, entry.of)
    if entry.depth > deepest:
        key = find_depth_key(ctx, VALIDATED, entry.of)
        raise UserError(
            f"datasets.{name}.depth (validation.depth) is {entry.depth}, but runs on {VALIDATED} are {deepest} deep; "
            f"raise depth.{key} or lower it"
        )
    inputs = plan_references(ctx, entry, f"datasets.{name}", Scope(entry.of, VALIDATED))
    return make_dataset(ctx, name, entry, inputs)


def full_value(ctx: Context, validated: Validated) -> Stage:
    """Return the stage that measures the same checkpoint on the full corpus, on the same queries."""
    name = validated.model
    system = validated.checkpoint.name
    validation = validation_of(ctx, name)
    data = ctx.trained_on(ctx.settings.models[name])
    if validated.part == "cross":
        system = f"{reference(ctx, name)}+{system}"
    subset = dataset(ctx, reduced_dataset(ctx, name)) if validation.queries else None
    where = f"models.{name}.validation"
    return score(ctx, system, where, data, [validation.measure], VALIDATED, {"subset": subset})


def list_validated(ctx: Context, name: str) -> list[Validated]:
    """Return a model's checkpoints with their values on the reduced dataset.

    They are ordered by part, the part that decides first.
    """
    if not is_validated(ctx, name):
        return []
    decisive = validation_of(ctx, name).part
    parts = sorted(
        PARTS_OF_OBJECTIVE[ctx.settings.models[name].objective], key=lambda part: part != decisive
    )
    validated = []
    for part in parts:
        for number, stage in ctx.checkpoints[name].items():
            validated.append(Validated(name, part, stage, reduced_value(ctx, name, number, part)))
    return validated
