"""Starting encoders and token ids as stages: from the catalogue, a folder, the hub, or pre-trained by the DAG."""

import re
from pathlib import Path

from tandem.config.encoders import NEW, AnyPretrained, PretrainedEncoder, PublishedEncoder
from tandem.errors import UserError, nearest
from tandem.plan.context import TRAINING, Context, json_of
from tandem.plan.datasets import dataset
from tandem.plan.graph import JSON, Stage
from tandem.store.files import sha256

HUB = re.compile(r"[\w.-]+/[\w.-]+")
FILES = ("source", "package", "folder", "name", "revision", "sha256", "layers")  # keys that decide an encoder's files
TOWERS = ("pooling", "normalize", "temperature")  # how a text's vector is computed


def encoder(ctx: Context, name: str, opened: tuple[str, ...] = ()) -> Stage:
    """The stage of a starting encoder."""
    if ("encoder", name) not in ctx.memo:
        entry = pretrained(ctx, name)
        ctx.memo["encoder", name] = _pretrain(ctx, name, entry, opened) if entry else _published(ctx, name)
    return ctx.memo["encoder", name]


def pretrained(ctx: Context, name: str) -> AnyPretrained | None:
    """The entry of an encoder that the DAG pre-trains; None for any other."""
    entry = ctx.settings.encoders.get(name)
    return entry if isinstance(entry, PretrainedEncoder) else None


def towers(ctx: Context, name: str) -> JSON:
    """How a text's vector is computed, as far as an encoder's entry, or what it starts from, says so."""
    usual = {key: getattr(entry, f"usual_{key}") for key in TOWERS} if (entry := pretrained(ctx, name)) else {}
    return usual | _own_towers(ctx, name)


def _own_towers(ctx: Context, name: str) -> JSON:
    entry = ctx.settings.encoders.get(name)
    own = {key: value for key in TOWERS if (value := getattr(entry, key, None)) is not None}
    start = entry.start if isinstance(entry, PretrainedEncoder) else None
    return own if start is None else _own_towers(ctx, start) | own


def _published(ctx: Context, name: str) -> Stage:
    known = ctx.settings.encoders
    if name in known:
        published = known[name]
        assert isinstance(published, PublishedEncoder)
        entry = published
    elif Path(name).is_dir():
        entry = PublishedEncoder(source="folder", path=name)
    elif HUB.fullmatch(name):
        entry = PublishedEncoder(source="hub", name=name, revision="main")
    else:
        hint = nearest(name, list(known))
        raise UserError(f"encoder: {name} is unknown: not in config/encoders, no folder, no org/name{hint}")
    params = {key: value for key, value in json_of(entry, *FILES).items() if value is not None}
    execution: JSON = {"licence": entry.licence} if entry.licence else {}
    if entry.source == "folder":
        weights = Path(entry.path or "") / "model.safetensors"
        if not weights.is_file():
            raise UserError(f"encoder: {entry.path} holds no model.safetensors; only safetensors are loaded")
        params["sha256"], execution["path"] = sha256(weights), entry.path
    label = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(name).name)
    return ctx.stage("encoder", "shared", label, params, {}, execution)


def _pretrain(ctx: Context, name: str, entry: AnyPretrained, opened: tuple[str, ...]) -> Stage:
    """The stage that pre-trains an encoder; `opened` are those that start from it."""
    if name in opened:
        raise UserError(f"encoders form a cycle: {' -> '.join([*opened, name])}")
    data = entry.dataset or ctx.settings.dataset
    start = encoder(ctx, entry.start, (*opened, name)) if entry.start else _vocabulary(ctx, name, entry, data)
    if entry.objective != "crop" and _layers(ctx, entry) == 0:
        raise UserError(
            f"encoders.{name}.objective is {entry.objective}, but an encoder without layers learns by crop alone"
        )
    train = json_of(entry.train) | {"seed": ctx.seed(entry.train.seed)}
    params = {"objective": entry.objective, **towers(ctx, name), "train": train}
    upstream = {"start": start, "tokens": tokens(ctx, name, data)}
    return ctx.stage("pretrain", data, name, params, upstream, ctx.execution(*TRAINING))


def _vocabulary(ctx: Context, name: str, entry: AnyPretrained, data: str) -> Stage:
    """The stage that learns a tokenizer from a corpus and draws the first weights."""
    at, longest = f"encoders.{name}", ctx.settings.lengths.passage + 2
    if longest > entry.positions:
        raise UserError(f"{at}.positions is {entry.positions}, but lengths.passage needs {longest}; raise it")
    params = json_of(entry, *NEW) | {"seed": ctx.seed(entry.train.seed)}
    return ctx.stage("vocabulary", data, name, params, {"dataset": dataset(ctx, data)})


def _layers(ctx: Context, entry: AnyPretrained) -> int | None:
    """The layers of an encoder that the DAG makes; None of a published one, which is not read for planning."""
    if entry.start is None:
        return entry.layers
    start = pretrained(ctx, entry.start)
    return _layers(ctx, start) if start else None


def tokenizer(ctx: Context, name: str) -> Stage:
    """The stage whose tokenizer an encoder has: token ids are shared by all that descend from it."""
    opened = [name]
    while entry := pretrained(ctx, name):
        if entry.start is None:
            return _vocabulary(ctx, name, entry, entry.dataset or ctx.settings.dataset)
        name = entry.start
        if name in opened:
            raise UserError(f"encoders form a cycle: {' -> '.join([*opened, name])}")
        opened.append(name)
    return encoder(ctx, name)


def tokens(ctx: Context, name: str, data: str) -> Stage:
    """Token ids of a dataset under an encoder's tokenizer."""
    if ("tokens", name, data) not in ctx.memo:
        source, lengths = tokenizer(ctx, name), ctx.settings.lengths
        params = {"query_length": lengths.query, "passage_length": lengths.passage}
        upstream = {"dataset": dataset(ctx, data), "encoder": source}
        ctx.memo["tokens", name, data] = ctx.stage("tokens", data, source.name, params, upstream)
    return ctx.memo["tokens", name, data]


def judges(ctx: Context, names: list[str], where: str, data: str, objectives: tuple[str, ...]) -> dict[str, Stage]:
    """Cross-encoders and the token ids that each reads, by role: `judge.0` with `judge_tokens.0`, ….

    Args:
        ctx: the configuration and its models.
        names: models or ensembles.
        where: the key that names them.
        data: whose queries and passages they read.
        objectives: what a judge must be.
    """
    upstream = {}
    for i, name in enumerate(ctx.members(names)):
        upstream[f"judge.{i}"] = ctx.model(name, where, objectives)
        upstream[f"judge_tokens.{i}"] = tokens(ctx, ctx.root(ctx.model_name(name), "cross"), data)
    return upstream
