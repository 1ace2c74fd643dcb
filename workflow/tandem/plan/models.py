"""Models as stages: what they start from, are trained on and learn from; their checkpoints and how those are validated.

With `train.checkpoints: N` a training is a chain of N stages `<model>.1` … `<model>.N`, each a system like any other;
the stage `model` takes one of them over, or its start `<model>.0`. Checkpoints are validated as such systems on a
reduced dataset, by other jobs.
"""

import re

from tandem.config.datasets import Reduced
from tandem.config.losses import TERM_RECALL, option_takers
from tandem.config.models import JointModel, ModelEntry, Validation
from tandem.config.representations import Representation, UniCoilTerms
from tandem.config.settings import Settings
from tandem.data.splits import VALIDATED
from tandem.errors import UserError, nearest
from tandem.plan.candidates import check_lists, is_source, teachers, training_lists
from tandem.plan.context import CROSS_PARTS, DUAL_PARTS, TRAINING, Context, Validated, json_of, require_name, start_of
from tandem.plan.datasets import dataset, make_dataset, may_have_split, notes_of, require_split
from tandem.plan.encoders import encoder, tokens_to_read
from tandem.plan.graph import Stage
from tandem.plan.reported import cutoff, require_suitable, run_depth
from tandem.plan.runs import run, score
from tandem.plan.searches import both_sides, encoded
from tandem.plan.sizes import check_model
from tandem.plan.towers import UNDESCRIBED, described_representation, towers
from tandem.stages.base import Json

PARTS = {"dual": ("dual",), "cross": ("cross",), "joint": ("dual", "cross")}
# What an entry says about a whole dataset and is not true of a part.
OF_THE_WHOLE = ("counts", "bytes", "measures", "score_split", "access", "where", "mteb")


def plan_model(ctx: Context, name: str) -> Stage:
    """The stage that trains a model. All that the model needs is planned already."""
    entry, at = ctx.settings.models[name], f"models.{name}"
    require_name("models", name)
    data, train = ctx.trained_on(entry), entry.train
    check_lists(ctx, at, entry)
    check_losses(at, entry)
    require_split(ctx, data, "train", f"{at}: is trained")
    part = "cross" if entry.objective == "cross" else "dual"
    upstream: dict[str, Stage | None] = {"dataset": dataset(ctx, data)}
    if isinstance(entry, JointModel):
        upstream["retriever"] = _start(ctx, f"{at}.init.retriever", entry.init.retriever, DUAL_PARTS)
        upstream["reranker"] = _start(ctx, f"{at}.init.reranker", entry.init.reranker, CROSS_PARTS)
        upstream["cross_tokens"] = tokens_to_read(ctx, ctx.root(name, "cross"), data, "cross")
    else:
        # A cross-encoder may also start from a dual encoder's passage tower; not the other way round.
        fit = DUAL_PARTS if part == "dual" else ("cross", "joint", "dual")
        upstream["start"] = _start(ctx, f"{at}.init", entry.init, fit)
    params: Json = {
        "objective": entry.objective,
        "train": json_of(train, without=train.undecisive) | {"seed": ctx.seed(train.seed)},
        "lora": json_of(entry.lora) if entry.lora else None,
        **_towers(ctx, name, entry, part),
    }
    check_used(at, entry, params)
    for each in PARTS[entry.objective]:
        check_model(ctx, at, entry, encoder(ctx, ctx.root(name, each)), params)
    upstream["tokens"] = tokens_to_read(ctx, ctx.root(name, part), data, part)
    upstream |= (lists := training_lists(ctx, at, entry.candidates, data))
    if distil := getattr(train, "distil", None):
        upstream |= teachers(ctx, at, distil, lists["candidates"], data)
        params["train"]["distil"] = json_of(distil, without=("from_", "weights", "normalize"))  # the teacher's
    if topics := getattr(train, "topics", None):
        queries = encoded(ctx, "embeddings", topics.by, f"{at}.train.topics.by", data, "train")
        clustering = {"clusters": topics.clusters, "seed": ctx.seed(train.seed)}
        inputs = {"dataset": upstream["dataset"], "queries": queries}
        upstream["topics"] = ctx.stage("topics", data, topics.by, clustering, inputs)
        params["train"]["topics"] = json_of(topics, without=("by",))  # the encoder is an input
    if validates_in_process(ctx, name):
        upstream["validation"] = run(ctx, reference(ctx, name), VALIDATED, f"{at}.validation.from", data)
    if train.checkpoints:
        return _train_in_stages(ctx, name, data, params, upstream)
    return ctx.stage("model", data, name, params, upstream, ctx.execution(*TRAINING))


def _start(ctx: Context, where: str, name: str, objectives: tuple[str, ...]) -> Stage:
    """What a model starts from: an encoder, or a model or re-ranker with the part that is needed."""
    if ctx.has_model(name):
        return ctx.model(name, where, objectives)
    settings = ctx.settings
    try:
        return encoder(ctx, settings.encoder if name == "encoder" else name)
    except UserError:
        if name == "encoder" or name in settings.encoders:
            raise
        hint = nearest(name, [*settings.models, *settings.encoders, *settings.rerankers])
        raise UserError(f"{where}: {name} is neither a model nor an encoder{hint}") from None


def _towers(ctx: Context, name: str, entry: ModelEntry, part: str) -> Json:
    """Pooling, and a dual encoder's scale and sharing: the model's own keys, else those of what it starts from."""
    start = start_of(entry, part)
    base = ctx.settings.models.get(ctx.model_name(start))
    if base is not None:
        inherited = _towers(ctx, ctx.model_name(start), base, part)
        for key, value in inherited.items():
            own = getattr(entry, key, None)
            own = json_of(own) if isinstance(own, Representation) else own
            if (entry.objective, part) == ("joint", "cross") or own in (None, value):
                continue
            if base.objective == "dual" and part == "cross":  # its head is new: so may be what the head reads
                inherited[key] = own
            else:
                raise UserError(f"models.{name}.{key} is {own}, but {start} has {value}; leave it out")
        return inherited
    root = towers(ctx, ctx.settings.encoder if start == "encoder" else start)
    values: Json = {} if part == "cross" else {"shared": getattr(entry, "shared", None) is not False}
    if part == "dual":
        chosen = getattr(entry, "representation", None)
        root = root | chosen.usual if chosen else root
        values["representation"] = json_of(chosen or described_representation(root))
    for key in UNDESCRIBED if part == "dual" else ("pooling",):
        own = getattr(entry, key, None)
        values[key] = root.get(key, UNDESCRIBED[key]) if own is None else own
        if start in ctx.settings.rerankers and values[key] != root[key]:
            raise UserError(f"models.{name}.{key} is {own}, but {start} has {root[key]}; leave it out")
    more = {key: value for key, value in root.items() if key not in (*UNDESCRIBED, "representation")}
    return values | (more if part == "dual" else {})


def check_used(at: str, entry: ModelEntry, towers: Json) -> None:
    """Refuse keys of an entry that mean nothing for its representation."""
    chosen = described_representation(towers)
    for path in chosen.unused:
        value: object = entry
        for key in path.split("."):
            value = getattr(value, key, None)
        if value is not None and value != ():
            raise UserError(f"{at}.{path} is set, but the representation {chosen.type} does not use it; leave it out")
    if getattr(entry.train, "loss", "") == TERM_RECALL and chosen != UniCoilTerms(queries="tokens"):
        expected = "the weights of passages' tokens alone; set representation: {type: unicoil, queries: tokens}"
        raise UserError(f"{at}.train.loss is {TERM_RECALL}, which learns {expected}")


def check_losses(at: str, entry: ModelEntry) -> None:
    """Refuse an option that none of a model's losses takes: one that is set and not used would be a silent mistake."""
    train = entry.train
    distil = getattr(train, "distil", None)
    in_batch = getattr(distil, "in_batch", None)
    scopes = {f"{at}.train": train, f"{at}.train.distil": distil, f"{at}.train.distil.in_batch": in_batch}
    for where, scope in scopes.items():
        keys = ("loss", "supervision", "semantics")
        losses = [loss for key in keys if isinstance(loss := getattr(scope, key, None), str)]
        for option, takers in option_takers().items():
            # 1.0 is the default of every option
            if (value := getattr(scope, option, 1.0)) != 1.0 and not set(losses) & set(takers):
                raise UserError(
                    f"{where}.{option} is {value}, but {' or '.join(losses)} takes none; used by {', '.join(takers)}"
                )


def _train_in_stages(ctx: Context, name: str, data: str, params: Json, upstream: dict[str, Stage | None]) -> Stage:
    """The stage that takes over a model's last or best checkpoint, and the chain that it comes from.

    `params` and `upstream` are those of the training in one piece.
    """
    train = ctx.settings.models[name].train
    count = train.checkpoints or 0
    _check_checkpoints(ctx, name, data, count)
    # Which one is taken over, and how many there are in all, is no part of a segment but its end.
    segment = {key: value for key, value in params["train"].items() if key not in ("checkpoints", "patience")}
    segment["choose"] = "last"
    chain: dict[int, Stage] = {}
    for number in range(0 if train.choose == "dev" else 1, count + 1):
        after = {"after": chain[number - 1]} if number > 1 else {}
        own = params | {"train": segment, "until": [number, count]}
        options = ctx.execution(*TRAINING)
        chain[number] = ctx.stage("checkpoint", data, f"{name}.{number}", own, upstream | after, options)
    ctx.checkpoints[name] = chain
    parts, first = PARTS[ctx.settings.models[name].objective], validation_of(ctx, name).part
    ctx.validated[name] = [
        Validated(name, part, stage, _reduced_value(ctx, name, number, part))
        for part in (sorted(parts, key=lambda part: part != first) if is_validated(ctx, name) else ())
        for number, stage in chain.items()
    ]
    taken = {f"checkpoint.{number}": stage for number, stage in chain.items()}
    if train.choose == "dev":
        values = ctx.validated[name][: len(chain)]
        taken |= {f"validation.{number}": value.reduced for number, value in zip(chain, values, strict=True)}
    return ctx.stage("model", data, name, params, taken)


def _check_checkpoints(ctx: Context, name: str, data: str, count: int) -> None:
    """Refuse checkpoints whose names are taken, more than there are steps, or that cannot be validated."""
    validation, train = validation_of(ctx, name), ctx.settings.models[name].train
    if train.choose == "dev":
        what = f"models.{name}.train.choose is dev and checkpoints is {count}: they are validated"
        require_split(ctx, data, VALIDATED, what)
    for number in range(1, count + 1):
        if f"{name}.{number}" in ctx.settings.models:
            raise UserError(
                f"models.{name}.{number} has the name of checkpoint {number} of models.{name}; name it otherwise"
            )
    if train.steps is not None and train.steps < count:
        raise UserError(f"models.{name}.train.checkpoints is {count}, but there are only {train.steps} steps")
    deepest = run_depth(ctx, VALIDATED, data)
    if cutoff(validation.measure) > deepest:
        raise UserError(
            f"validation.measure: {validation.measure} looks deeper than runs on {VALIDATED} go ({deepest}); "
            f"raise depth.{VALIDATED}"
        )
    require_suitable(ctx, "validation.measure", validation.measure, data)
    if validation.method == "average_rank" and ctx.dataset_entry(data).relevance == "answers":
        raise UserError(f"validation.method is average_rank, which needs qrels; dataset {data} has answers")


def validation_of(ctx: Context, name: str) -> Validation:
    """How a model's checkpoints are validated: the configuration's `validation`, with the model's own over it."""
    return ctx.settings.validation.overridden(ctx.settings.models[name].validation)


def reference(ctx: Context, name: str) -> str:
    """The run whose top a model is validated on: `validation.from`, else that of its negatives, if it exists on dev."""
    if own := validation_of(ctx, name).from_:
        return own
    source = ctx.settings.models[name].candidates.from_
    entry = ctx.settings.runs.get(source)
    is_imported = entry is not None and not entry.stage and VALIDATED not in entry.paths
    return "bm25" if is_source(source) or source == "given" or is_imported else source


def validates_in_process(ctx: Context, name: str) -> bool:
    """Whether a training validates on lists of dev queries itself; training queries are set apart where it cannot."""
    entry = ctx.settings.models[name]
    data, train = ctx.trained_on(entry), entry.train
    if train.validate_every is None and (train.choose == "last" or train.checkpoints):
        return False
    return ctx.dataset_entry(data).relevance == "qrels" and may_have_split(ctx, data, VALIDATED)


def is_validated(ctx: Context, name: str) -> bool:
    """Whether a model's checkpoints are validated: where the best is taken, or where there are queries to do it on."""
    entry = ctx.settings.models[name]
    if not entry.train.checkpoints:
        return False
    return entry.train.choose == "dev" or may_have_split(ctx, ctx.trained_on(entry), VALIDATED)


def unused_keys(settings: Settings) -> list[str]:
    """A line for each key of `validation` that nothing reads, since only checkpoints are validated as it says.

    And for each `patience` beside `checkpoints`, all of which are trained.
    """
    own: dict[str, tuple[Validation, str]] = {}
    unread: list[str] = []
    for name, model in settings.models.items():
        at, train = f"models.{name}.train", model.train
        if train.checkpoints and train.patience and "patience" in train.model_fields_set:
            unread.append(f"{at}.patience has no effect: {at}.checkpoints is {train.checkpoints}")
        if not train.checkpoints:
            own[f"models.{name}.validation"] = model.validation, f"models.{name}.train.checkpoints is null"
    if len(own) == len(settings.models):
        own["validation"] = settings.validation, "no model has train.checkpoints"
    keys = ((at, key, why) for at, (block, why) in own.items() for key in block.model_fields_set - {"from_"})
    return unread + [f"{at}.{key} has no effect: {why}" for at, key, why in sorted(keys)]


def reduced_dataset(ctx: Context, name: str) -> str:
    """The reduced dataset that a model's checkpoints are validated on, which is entered if it is not there."""
    validation, base = validation_of(ctx, name), ctx.trained_on(ctx.settings.models[name])
    source, depth, others, queries = reference(ctx, name), validation.depth, validation.others, validation.queries
    size = [f"{key}{value}" for key, value in (("others", others), ("queries", queries)) if value]
    label = re.sub(r"[^\w.-]", "-", "-".join([base, "reduced", source, str(depth), *size]))
    notes = notes_of(ctx.dataset_entry(base), OF_THE_WHOLE)
    entry = Reduced(source="reduced", of=base, from_=source, depth=depth, others=others, dev_queries=queries, **notes)
    if ctx.datasets.setdefault(label, entry) != entry:
        raise UserError(f"datasets.{label} has the name of a dataset made for validation; name it otherwise")
    return label


def _reduced_value(ctx: Context, name: str, number: int, part: str) -> Stage:
    """The stage that validates a checkpoint on the reduced dataset."""
    validation, data, where = validation_of(ctx, name), reduced_dataset(ctx, name), f"models.{name}.validation"
    system = f"{name}.{number}"
    if part == "dual" and validation.method == "average_rank":
        upstream = both_sides(ctx, "embeddings", system, VALIDATED, where, data)
        params = {"split": VALIDATED, "ignore_identical_ids": ctx.dataset_entry(data).ignore_identical_ids}
        return ctx.stage("average_rank", data, f"{system}.{VALIDATED}", params, upstream)
    system = f"given+{system}" if part == "cross" else system
    return score(ctx, system, where, data, [validation.measure], VALIDATED)


def plan_reduced(ctx: Context, name: str, entry: Reduced) -> Stage:
    """The stage of a reduced dataset: the reference run decides which passages are kept."""
    deepest = run_depth(ctx, VALIDATED, entry.of)
    if entry.depth > deepest:
        raise UserError(
            f"datasets.{name}.depth (validation.depth) is {entry.depth}, but runs on {VALIDATED} are {deepest} deep; "
            f"raise depth.{VALIDATED} or lower it"
        )
    reference = run(ctx, entry.from_, VALIDATED, f"datasets.{name}.from", entry.of)
    return make_dataset(ctx, name, entry, {"of": dataset(ctx, entry.of), "run": reference})


def full_value(ctx: Context, validated: Validated) -> Stage:
    """The stage that measures the same checkpoint on the full corpus, on the same queries."""
    name, system = validated.model, validated.checkpoint.name
    validation, data = validation_of(ctx, name), ctx.trained_on(ctx.settings.models[name])
    system = f"{reference(ctx, name)}+{system}" if validated.part == "cross" else system
    subset = dataset(ctx, reduced_dataset(ctx, name)) if validation.queries else None
    by, where = [validation.measure], f"models.{name}.validation"
    return score(ctx, system, where, data, by, VALIDATED, {"subset": subset})
