"""Plan starting encoders, and the token ids that they read.

Encoders are from the catalogue, a folder or the hub, or stages make them: `plans_encoder` plans the latter."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import get_args

from tandem.config.base import Pooling, Section
from tandem.config.encoders import START_BLOCKS, EncoderFiles, Published
from tandem.config.models import CrossModel
from tandem.config.references import CROSS_PARTS, DUAL_PARTS, Name
from tandem.config.representations import Representation, Single, is_single
from tandem.errors import Unavailable, UserError, nearest
from tandem.models.folders import hash_files, hash_weights
from tandem.models.heads import check_reranker
from tandem.plan.context import (
    Context,
    checks_entry,
    json_of,
    plans_encoder,
    plans_reference,
    plans_tokenizer,
)
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope
from tandem.plan.sizes import check_lengths
from tandem.plan.towers import (
    UNDESCRIBED,
    at_commit,
    chosen_by,
    described_by,
    described_representation,
    find_start_block,
    folder_of,
    made_encoder,
    published_entry,
    towers,
)
from tandem.stages import KINDS
from tandem.stages.base import Json
from tandem.stages.training import CROSS_FORMS, find_form
from tandem.store.files import sha256_once
from tandem.store.job import load

_OF_PIECES = "tokens"  # the kind of stage whose ids are of pieces of a vocabulary


def encoder(ctx: Context, name: str, where: str = "encoder") -> Stage:
    """Return the stage of a starting encoder; `where` is the key that names it."""
    if block := find_start_block(ctx, name):
        return ctx.entry(block, name)
    if ("encoder", name) not in ctx.memo:
        entry = made_encoder(ctx, name)
        if entry:
            ctx.memo["encoder", name] = plans_encoder[entry.source](ctx, name, entry)
        else:
            ctx.memo["encoder", name] = _plan_published_encoder(ctx, name, where)
    return ctx.memo["encoder", name]


@checks_entry("encoders")
def check_encoder(ctx: Context, name: str) -> None:
    """Refuse an encoder that stages would have to make but cannot; published ones are checked when they are needed."""
    if made_encoder(ctx, name):
        encoder(ctx, name)


def untrained(ctx: Context, name: str) -> Stage:
    """Return the stage that turns an encoder into a dual encoder without training.

    Raises:
        Unavailable: nothing states how vectors are made.
    """
    start = encoder(ctx, name)
    chosen = towers(ctx, name)
    if "pooling" not in chosen:
        raise Unavailable(
            f"encoders.{name}.pooling: its files do not say how a text's vector is made, so it is not a system "
            f"as it is; say pooling: {', '.join(get_args(Pooling))}"
        )
    return ctx.stage(
        "untrained", start.dataset, start.name, UNDESCRIBED | chosen, {"encoder": start}
    )


def _plan_published_encoder(ctx: Context, name: str, where: str) -> Stage:
    reranker = ctx.settings.rerankers.get(name)
    if reranker:
        return plan_published(ctx, "encoder", f"rerankers.{name}", at_commit(reranker))
    entry = published_entry(ctx.settings.encoders, name, where)

    def describe() -> Json:
        usual = {"pooling": (UNDESCRIBED | chosen_by(entry, {}))["pooling"]}
        return {"vectors": described_by(entry) or usual}

    by_its_files = entry.pooling is None
    return plan_published(
        ctx, "encoder", f"encoders.{name}", entry, describe if by_its_files else None
    )


def plan_published(
    ctx: Context, kind: str, at: str, entry: Published, describe: Callable[[], Json] | None = None
) -> Stage:
    """Plan the stage of a kind that copies the files of a published model and checks them.

    Args:
        at: path of the entry: its block and name.
        describe: returns the description that its files are expected to give, which the stage compares with theirs; it
            is called once the weights have been found.
    Raises:
        UserError: the weights in a folder are not those that the entry expects.
    """
    params = json_of(entry, *EncoderFiles.model_fields)
    execution: Json = {"licence": entry.licence} if entry.licence else {}
    if entry.source == "folder":
        folder = folder_of(entry)
        execution["path"] = entry.path
        params["sha256"] = hash_weights(folder, sha256_once)
        params["files_sha256"] = hash_files(folder, sha256_once)
        if entry.sha256 and entry.sha256 != params["sha256"]:
            problem = f"is {entry.sha256}, but the weights of {entry.path} have {params['sha256']}"
            raise UserError(f"{at}.sha256 {problem}")
    name = at.partition(".")[2]
    label = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(name).name)
    if describe:
        execution |= describe()
    return ctx.stage(kind, "shared", label, params, {}, execution)


def tokenizer(ctx: Context, name: str, where: str = "encoder") -> Stage:
    """Return the stage whose tokenizer an encoder has; all encoders that descend from it share their token ids."""
    if block := find_start_block(ctx, name):
        return plans_tokenizer[block](ctx, name, ctx.settings.entries(block, Section)[name])
    entry = made_encoder(ctx, name)
    if entry is None:
        return encoder(ctx, name, where)
    if entry.start is None or entry.has_own_tokenizer:
        return plans_tokenizer[entry.source](ctx, name, entry)
    with ctx.opening("encoders", name):
        return tokenizer(ctx, entry.start, f"encoders.{name}.start")


def tokens(
    ctx: Context,
    name: str,
    data: str,
    part: str = "cross",
    representation: Representation | None = None,
) -> Stage:
    """Plan the token ids of a dataset by an encoder's tokenizer; those of part `dual` begin with its prompts.

    In front of these stand the markers of a dual encoder's `representation`. Part `alone`, for pre-training, has
    neither prompts nor the lengths of a cross-encoder's pairs.
    """
    markers = representation.side_markers if representation else {}
    known = ("tokens", name, data, part, *(f"{side} {marker}" for side, marker in markers.items()))
    if known not in ctx.memo:
        source = tokenizer(ctx, name)
        kind = KINDS[source.kind].tokens
        if kind != _OF_PIECES and not (part == "dual" and is_single(representation or Single())):
            what = "which only dual encoders of one vector a text can start from"
            raise UserError(f"{name} reads words by their characters, {what}")
        lengths = ctx.settings.lengths
        params: Json = {
            "query_length": lengths.query,
            "passage_length": lengths.passage,
            "prompts": {},
        }
        if part == "dual":
            params |= {
                "prompts": towers(ctx, name).get("prompts", {}),
                "titled": lengths.titles == "segment",
            }
            params["markers"] = markers
        elif (
            part == "cross" and lengths.pair is not None
        ):  # a passage has the room its query leaves
            params |= {"passage_length": lengths.pair, "pair_length": lengths.pair}
        upstream = {"dataset": dataset(ctx, data), "encoder": source}
        ctx.memo[known] = ctx.stage(kind, data, source.name, params, upstream)
    return ctx.memo[known]


def tokens_to_read(
    ctx: Context,
    name: str,
    data: str,
    part: str,
    representation: Representation | None = None,
    compares: bool = False,
) -> Stage:
    """Return the token ids that an encoder reads, for the computation itself.

    Args:
        compares: whether it reads two passages at a time.
    Raises:
        UserError: the encoder has fewer positions than the texts need.
    """
    passages = 2 if compares else 1
    fitting = ("fitting", name, part, str(passages))
    if fitting not in ctx.memo:
        block = find_start_block(ctx, name)
        if block is None or START_BLOCKS[block].has_positions:
            check_lengths(ctx, name, encoder(ctx, name), part, passages)
        ctx.memo[fitting] = encoder(ctx, name)
    return tokens(ctx, name, data, part, representation)


def tokens_of_dual(ctx: Context, system: str, model: Stage, data: str) -> Stage:
    """Plan the token ids of a dataset as a system's dual encoder, whose stage is `model`, reads them."""
    name = ctx.root(ctx.model_name(system), "dual")
    return tokens_to_read(ctx, name, data, "dual", model.params.representation)


def dual_encoder(ctx: Context, system: str, where: str, also: Iterable[str] = ()) -> Stage:
    """Return the stage of a dual encoder, trained or not.

    `where` names the key that refers to it, or to one of `also`.
    """
    if name := ctx.untrained(system):
        return untrained(ctx, name)
    return ctx.model(system, where, DUAL_PARTS, also=["encoder", *also], more=ctx.settings.encoders)


@plans_reference("dual encoder")
def plan_named_dual(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the dual encoder that a key names, and the token ids that it reads."""
    model = dual_encoder(ctx, name.names[0], name.path)
    tokens_read = tokens_of_dual(ctx, name.names[0], model, scope.dataset)
    return {name.role: model, name.reference.tokens: tokens_read}


@plans_reference("cross-encoder")
def plan_named_crosses(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the cross-encoders that a key names; see `judges`."""
    return judges(ctx, list(name.names), name.path, scope.dataset, CROSS_PARTS)


@plans_reference("start")
def plan_start(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan what a training starts from: an encoder, or a model or re-ranker that has the needed part."""
    start = name.names[0]
    settings = ctx.settings
    if ctx.has_model(start):
        return {name.role: ctx.model(start, name.path, name.reference.objectives)}
    block = find_start_block(ctx, start)
    if block and (name.role != "start" or "cross" not in name.reference.objectives):
        noun = START_BLOCKS[block].noun
        raise UserError(f"{name.path} is {start}, a {noun}, which cross-encoders alone start from")
    try:
        return {name.role: encoder(ctx, settings.encoder if start == "encoder" else start)}
    except UserError:
        if start == "encoder" or start in settings.encoders or block:
            raise
        hint = nearest(start, ctx.list_names(("models", "encoders", "rerankers", *START_BLOCKS)))
        raise UserError(f"{name.path}: {start} is neither a model nor an encoder{hint}") from None


def plan_reranker(ctx: Context, name: str) -> Stage:
    """Return the stage that turns a published cross-encoder into a model of the project.

    Its files are pinned like those of an encoder.
    """
    entry = ctx.settings.rerankers[name]
    if entry.source != "hub":
        check_reranker(folder_of(entry))
    start = encoder(ctx, name)
    return ctx.stage("reranker", start.dataset, start.name, {}, {"encoder": start})


@checks_entry("rerankers")
def check_reranker_entry(ctx: Context, name: str) -> None:
    """Refuse a published cross-encoder that cannot be turned into a model."""
    ctx.model(name, f"rerankers.{name}")


def judges(
    ctx: Context, names: list[str], where: str, data: str, objectives: tuple[str, ...]
) -> dict[str, Stage]:
    """Plan cross-encoders and the token ids that each reads, by role: `judge.0` with `judge_tokens.0`, ….

    `where` is the key that names the models or ensembles; each must have one of `objectives`.
    """
    upstream = {}
    for number, name in enumerate(ctx.members(names)):
        judge, read = judge_with_tokens(ctx, name, where, data, objectives, ctx.settings.ensembles)
        upstream[f"judge.{number}"] = judge
        upstream[f"judge_tokens.{number}"] = read
    return upstream


def judge_with_tokens(
    ctx: Context,
    name: str,
    where: str,
    data: str,
    objectives: tuple[str, ...],
    also: Iterable[str] = (),
) -> tuple[Stage, Stage]:
    """Return a model that scores pairs, and the token ids that it reads; see `judges`.

    The key may also name one of `also`.
    """
    dual = pair_scoring_dual(ctx, name)
    if dual is not None:
        return dual, tokens_of_dual(ctx, name, dual, data)
    if ctx.untrained(name):
        kinds = (
            "a published cross-encoder is an entry of rerankers, a language model of llm_rerankers"
        )
        raise UserError(f"{where}: {name} counts as an encoder that scores no pairs; {kinds}")
    known = chain(_pair_scoring(ctx), also)
    model = ctx.model(name, where, objectives, known)
    read = texts_of_cross(ctx, ctx.model_name(name), data, where)
    root, compares = ctx.root(ctx.model_name(name), "cross"), bool(model.values.get("compares"))
    return model, tokens_to_read(ctx, root, read, "cross", compares=compares)


def texts_of_cross(ctx: Context, name: str, data: str, where: str) -> str:
    """Return the dataset whose texts a cross-encoder reads to score passages of `data`; some forms read another one."""
    entry = ctx.settings.models.get(name)
    form = find_form(entry) if isinstance(entry, CrossModel) else None
    return data if form is None else load(CROSS_FORMS[form].find_texts)(ctx, name, data, where)


def _pair_scoring(ctx: Context) -> Iterator[str]:
    """Yield the names of the dual encoders whose entry has a representation that scores pairs."""
    entries = {**ctx.settings.encoders, **ctx.settings.models}
    for name, entry in entries.items():
        representation = getattr(entry, "representation", None)
        if representation is not None and representation.scores_pairs:
            yield name


def pair_scoring_dual(ctx: Context, name: str) -> Stage | None:
    """Return the stage of a dual encoder, trained or not, whose representation scores pairs.

    None for any other name.
    """
    own = ctx.settings.models.get(ctx.model_name(name))
    if own is not None and own.objective == "dual":
        model = ctx.model(name, name)
    elif own is None and (encoder_name := ctx.untrained(name)):
        if not described_representation(towers(ctx, encoder_name)).scores_pairs:
            return None
        model = untrained(ctx, encoder_name)
    else:
        return None
    return model if model.params.representation.scores_pairs else None
