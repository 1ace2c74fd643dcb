"""Plan models: what they start from, what they are trained on, and what they learn from."""

from typing import Any

from tandem.config.encoders import START_BLOCKS
from tandem.config.losses import OWN_LOSSES, option_takers
from tandem.config.models import (
    COMPARING,
    DUO_T5,
    MONO_T5,
    T5_WORDS,
    CrossModel,
    DualModel,
    JointModel,
    ModelEntry,
)
from tandem.config.representations import Representation
from tandem.config.training import DualTrain
from tandem.errors import UserError
from tandem.plan.candidate_lists import check_lists, training_lists
from tandem.plan.context import (
    ALWAYS_THERE,
    TRAINING,
    Context,
    checks_entry,
    checks_training,
    json_of,
    plans_entry,
    plans_inputs,
    plans_objective,
    plans_training,
    require_name,
    start_of,
)
from tandem.plan.dataset_stages import dataset, require_split
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references
from tandem.plan.sizes import check_model, count_positions
from tandem.plan.starting_encoders import encoder, plan_reranker, texts_of_cross, tokens_to_read
from tandem.plan.towers import (
    UNDESCRIBED,
    described_representation,
    find_start_block,
    towers,
    with_usual,
)
from tandem.stages.base import Json
from tandem.stages.training import CROSS_FORMS
from tandem.store.job import load

PARTS_OF_OBJECTIVE = {"dual": ("dual",), "cross": ("cross",), "joint": ("dual", "cross")}


@plans_entry("models")
def plan_model(ctx: Context, name: str) -> Stage:
    """Plan a model: its training, or the conversion of a published re-ranker, which is named like a model."""
    if name not in ctx.settings.models:
        return plan_reranker(ctx, name)
    entry = ctx.settings.models[name]
    train = entry.train
    data = ctx.trained_on(entry)
    at = f"models.{name}"
    named_by = "train_on" if ctx.settings.train_on else "dataset"
    # refuses an unknown name
    ctx.dataset_entry(data, f"{at}.dataset" if entry.dataset else named_by)
    require_name("models", name)
    if name in ALWAYS_THERE or name.startswith("bm25."):  # it would take their place without a word
        raise UserError(
            f"{at} has the name of a run that every configuration has; name it otherwise"
        )
    for key in checks_training:
        if getattr(train, key, None):
            checks_training[key](ctx, at, entry, data)
    check_lists(ctx, at, entry, data)
    check_losses(at, entry)
    require_split(ctx, data, "train", f"{at}: is trained")

    collection = dataset(ctx, data)
    # before the entries that it names are planned, since its mistakes name their key
    read = texts_of_cross(ctx, name, data, at)
    lists = training_lists(ctx, at, entry.candidates, data)
    scope = Scope(data, entry.candidates.split, ctx.seed(train.seed), lists)
    named = plan_references(ctx, entry, at, scope)

    part = "cross" if entry.objective == "cross" else "dual"
    params: Json = {
        "objective": entry.objective,
        "train": json_of(train, without=train.undecisive) | {"seed": ctx.seed(train.seed)},
        "lora": json_of(entry.lora) if entry.lora else None,
        **_towers(ctx, name, entry, part),
    }
    params |= _reading(ctx, name, params["pooling"])
    if entry.sort == COMPARING:
        params["compares"] = True
    if entry.candidates.one_list:
        params["one_list"] = True
    check_used(at, entry, params)
    check_first_loss(ctx, at, entry, params)
    for trained in PARTS_OF_OBJECTIVE[entry.objective]:
        check_model(ctx, at, entry, encoder(ctx, ctx.root(name, trained)), params)

    upstream: dict[str, Stage | None] = {"dataset": collection, **lists, **named}
    representation = described_representation(params) if part == "dual" else None
    if isinstance(entry, CrossModel):
        for name_of_form, form in CROSS_FORMS.items():
            load(form.check_entry)(ctx, at, entry, params)
            options = getattr(entry, name_of_form)
            params[name_of_form] = json_of(options) if options else None
    root, compares = ctx.root(name, part), entry.sort == COMPARING
    if representation and (positions := count_positions(encoder(ctx, root), ctx.settings)):
        representation.check_positions(at, positions)
    upstream["tokens"] = tokens_to_read(ctx, root, read, part, representation, compares)
    if isinstance(entry, JointModel):
        upstream["cross_tokens"] = tokens_to_read(ctx, ctx.root(name, "cross"), data, "cross")
    execution = ctx.execution(*TRAINING)
    if isinstance(train, DualTrain) and train.own_objective:
        inputs, more = plans_objective[train.own_objective](ctx, at, entry, data, params)
        upstream |= inputs
        execution |= more
    if train.validates and "validates" not in plans_inputs:
        problem = f"{at}.train: choose is {train.choose}, but no package validates"
        raise UserError(f"{problem}; set choose to last and leave validate_every out, or load one")
    for key in plans_inputs:
        if getattr(train, key, None):
            upstream |= plans_inputs[key](ctx, name, data)
    if (train.checkpoints or entry.candidates.refresh) and "checkpoints" not in plans_training:
        problem = f"{at}: no package trains in several stages"
        raise UserError(
            f"{problem}; leave train.checkpoints and candidates.refresh out, or load a plugin that does"
        )
    if train.checkpoints:
        return plans_training["checkpoints"](ctx, name, scope, params, upstream, execution)
    return ctx.stage("model", data, name, params, upstream, execution)


@checks_entry("models")
def check_model_entry(ctx: Context, name: str) -> None:
    """Refuse a model that cannot be trained."""
    ctx.model(name, f"models.{name}")


def _towers(ctx: Context, name: str, entry: ModelEntry, part: str) -> Json:
    """Return pooling, and a dual encoder's scale and sharing: the model's own keys, else those of what it starts from.

    Raises:
        UserError: a key of the model's own contradicts the trained model, or the re-ranker, that it starts from.
    """
    start = start_of(entry, part)
    base = ctx.settings.models.get(ctx.model_name(start))
    if base is not None:
        return _inherited_towers(ctx, name, entry, part, base)

    described = towers(ctx, ctx.settings.encoder if start == "encoder" else start)
    if part == "cross":
        return {"pooling": _own_or_described(ctx, name, entry, start, "pooling", described)}

    chosen = getattr(entry, "representation", None)
    described = with_usual(described, chosen)
    values: Json = {
        "shared": getattr(entry, "shared", None) is not False,
        "representation": json_of(chosen or described_representation(described)),
    }
    if layers := getattr(entry, "query_layers", None):
        if values["shared"] or values["representation"].get("queries") == "tokens":
            problem = (
                f"models.{name}.query_layers is {layers}, but queries have no encoder of their own"
            )
            raise UserError(f"{problem}; set shared: false, and leave out queries: tokens")
        values["query_layers"] = layers
    for key in UNDESCRIBED:
        values[key] = _own_or_described(ctx, name, entry, start, key, described)
    more = {
        key: value
        for key, value in described.items()
        if key not in (*UNDESCRIBED, "representation")
    }
    return values | more


def _own_or_described(
    ctx: Context, name: str, entry: ModelEntry, start: str, key: str, described: Json
) -> Any:
    """Return a model's own value of a key, else that of the encoder it starts from, else the usual one."""
    own = getattr(entry, key, None)
    value = described.get(key, UNDESCRIBED[key]) if own is None else own
    if start in ctx.settings.rerankers and value != described[key]:
        raise UserError(
            f"models.{name}.{key} is {own}, but {start} has {described[key]}; leave it out"
        )
    return value


def _inherited_towers(
    ctx: Context, name: str, entry: ModelEntry, part: str, base: ModelEntry
) -> Json:
    """Return the settings of the trained model that a model starts from, which its own keys may not contradict."""
    start = start_of(entry, part)
    inherited = _towers(ctx, ctx.model_name(start), base, part)
    # the keys of a joint model are of its dual encoder
    if entry.objective == "joint" and part == "cross":
        return inherited
    own_layers = getattr(entry, "query_layers", None)
    if own_layers not in (None, inherited.get("query_layers")):
        has = inherited.get("query_layers") or "all of them"
        raise UserError(
            f"models.{name}.query_layers is {own_layers}, but {start}, a trained model, has {has}; leave it out"
        )
    has_new_head = base.objective == "dual" and part == "cross"
    for key, value in inherited.items():
        own = getattr(entry, key, None)
        if isinstance(own, Representation):
            own = json_of(own)
        if own is None or own == value:
            continue
        # the tower that both sides share becomes two
        splits_tower = key == "shared" and own is False
        if not (splits_tower or has_new_head):
            raise UserError(f"models.{name}.{key} is {own}, but {start} has {value}; leave it out")
        inherited[key] = own
    return inherited


def _reading(ctx: Context, name: str, pooling: str) -> Json:
    """Return a cross-encoder's prompt and words: its own keys, else those of the one that it starts from."""
    entry = ctx.settings.models.get(ctx.model_name(name))
    if isinstance(entry, JointModel):
        return _reading(ctx, start_of(entry, "cross"), pooling)
    if not isinstance(entry, CrossModel):
        return {}
    at = f"models.{name}"
    start = entry.init
    base = ctx.settings.models.get(ctx.model_name(start))
    if base is not None and base.objective != "dual":
        if base.sort != entry.sort:
            kinds = "compares passages" if entry.compares else "scores one passage"
            raise UserError(
                f"{at}.init is {start}, a {base.sort} model, but {name} {kinds}; start from an encoder"
            )
        inherited = _reading(ctx, start, pooling)
        for key in ("prompt", "words"):
            own = json_of(entry)[key]
            if own and own != inherited.get(key):
                usual = inherited.get(key) or "none"
                raise UserError(f"{at}.{key} is {own}, but {start} has {usual}; leave it out")
        return inherited
    if pooling == "decoder":
        block = find_start_block(ctx, start)
        if block is None or START_BLOCKS[block].pooling != pooling:
            problem = f"{at}.pooling is decoder, but {start} is not a generator, whose decoder would write"
            raise UserError(f"{problem}; start from an entry of generators (T5, BART)")
        usual = DUO_T5 if entry.compares else MONO_T5
        return {"prompt": entry.prompt or usual, "words": list(entry.words or T5_WORDS)}
    if entry.words:
        raise UserError(
            f"{at}.words are {', '.join(entry.words)}, but pooling {pooling} writes none; leave them out"
        )
    if entry.prompt and pooling in ("segments", "classifier"):
        raise UserError(f"{at}.prompt is set, which pooling {pooling} does not read; leave it out")
    return {"prompt": entry.prompt}


def check_used(at: str, entry: ModelEntry, towers: Json) -> None:
    """Refuse keys of an entry that have no effect with its representation."""
    chosen = described_representation(towers)
    for path in chosen.list_unused():
        value: object = entry
        for key in path.split("."):
            value = getattr(value, key, None)
        if value is not None and value != ():
            raise UserError(
                f"{at}.{path} is set, but the representation {chosen.type} does not use it; leave it out"
            )
    loss = str(getattr(entry.train, "loss", ""))
    own = OWN_LOSSES.get(loss)
    if own and not own.fits(chosen):
        raise UserError(f"{at}.train.loss is {loss}, which learns {own.requirement}")


def check_first_loss(ctx: Context, at: str, entry: ModelEntry, towers: Json) -> None:
    """Refuse to start from an encoder if a part of the representation must have been learned before."""
    if not isinstance(entry, DualModel):
        return
    first = described_representation(towers).learned_first
    trained = ctx.model_name(entry.init) in ctx.settings.models
    if first and entry.train.loss != first and not trained:
        problem = (
            f"{at}.init is {entry.init}, but its representation has a part that is learned first"
        )
        raise UserError(f"{problem}; start from a model that has learned by train.loss: {first}")


def check_losses(at: str, entry: ModelEntry) -> None:
    """Refuse an option that none of a model's losses takes, since it would have no effect."""
    distil = getattr(entry.train, "distil", None)
    in_batch = getattr(distil, "in_batch", None)
    scopes = {
        f"{at}.train": entry.train,
        f"{at}.train.distil": distil,
        f"{at}.train.distil.in_batch": in_batch,
    }
    takers_of = option_takers()
    for where, scope in scopes.items():
        named = [getattr(scope, key, None) for key in ("loss", "supervision", "semantics")]
        losses = [loss for loss in named if isinstance(loss, str)]
        for option, takers in takers_of.items():
            value = getattr(scope, option, 1.0)
            if value != 1.0 and not set(losses) & set(takers):  # 1.0 is the default of every option
                problem = f"{where}.{option} is {value}, but {' or '.join(losses)} takes none"
                raise UserError(f"{problem}; used by {', '.join(takers)}")
