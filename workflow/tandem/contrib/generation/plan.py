"""Generators, their texts, and the datasets and runs that are made of these, as stages."""

from tandem.config.references import CROSS_PARTS, DUAL_PARTS, Name
from tandem.config.retrieval import QueryTexts
from tandem.config.settings import Settings
from tandem.contrib.generation.generator_folders import check_decoding, check_generator
from tandem.contrib.generation.options import (
    NEW_LAYERS,
    PASSAGE,
    QUERY,
    Appended,
    AskedGenerator,
    Decoding,
    Expanded,
    Expansion,
    GeneratedQueries,
    Generation,
    GeneratorEntry,
    NewGenerator,
    PublishedGenerator,
    Reads,
    ReadsTokens,
    TrainedGenerator,
)
from tandem.errors import UserError, nearest
from tandem.extras.language_models.options import LanguageModel
from tandem.extras.planning import NOTES_OF_FILES, NOTES_OF_THE_WHOLE, notes_of
from tandem.models.folders import read_positions
from tandem.plan.context import (
    PARTS,
    TRAINING,
    Context,
    checks_entry,
    json_of,
    lists_unused_keys,
    plans_dataset,
    plans_entry,
    plans_reference,
    plans_run,
    plans_tokenizer,
    require_name,
)
from tandem.plan.dataset_stages import dataset, find_base, make_dataset, require_split
from tandem.plan.graph import Stage
from tandem.plan.named_entries import Scope, plan_references
from tandem.plan.reported import find_depth_key, reported_split, run_depth, searched
from tandem.plan.run_expressions import run
from tandem.plan.sizes import encoder_of, known_shape, read_encoder_config
from tandem.plan.starting_encoders import (
    dual_encoder,
    encoder,
    judge_with_tokens,
    plan_published,
    tokenizer,
    tokens_of_dual,
)
from tandem.plan.towers import at_commit, folder_of
from tandem.stages import KINDS
from tandem.stages.base import Json

# suffix of the name of the dataset with all generated queries; a run over it decides which of them stay
ALL = "all"


def _generators(ctx: Context) -> dict[str, Reads]:
    return ctx.settings.entries("generators", Reads)


def _expansions(ctx: Context) -> dict[str, Expansion]:
    return ctx.settings.entries("expansions", Expansion)


@plans_tokenizer("generators")
def plan_tokenizer(ctx: Context, name: str, entry: Reads) -> Stage:
    """Plan the stage with a generator's tokenizer, which is that of the generator or encoder that it starts from.

    A new T5 has the tokenizer of the configuration's encoder.
    """
    if not isinstance(entry, TrainedGenerator):
        return ctx.entry("generators", name)
    with ctx.opening("generators", name):
        known = _generators(ctx)
        if entry.start in known:
            return plan_tokenizer(ctx, entry.start, known[entry.start])
        return tokenizer(ctx, _start_encoder(ctx, entry))


def _start_encoder(ctx: Context, entry: TrainedGenerator) -> str:
    """Return the encoder whose vocabulary a generator has if it does not start from another generator."""
    if entry.start is None or entry.start == "encoder":
        return ctx.settings.encoder
    return entry.start


@plans_entry("generators")
def plan_generator(ctx: Context, name: str) -> Stage:
    """Plan an entry of `generators` that has its own model: a published one, or one that is trained."""
    match _generators(ctx)[name]:
        case PublishedGenerator() as entry:
            return _plan_published_generator(ctx, name, entry)
        case TrainedGenerator() as entry:
            return _trained(ctx, name, entry)
        case _:
            raise UserError(f"generators.{name} is behind a server: nothing here starts from it")


@checks_entry("generators")
def check_generator_entry(ctx: Context, name: str) -> None:
    """Refuse a generator to be trained that cannot be; published ones are checked when they are needed."""
    if isinstance(_generators(ctx)[name], TrainedGenerator):
        generator(ctx, name, f"generators.{name}")


@checks_entry("generations")
def check_generation(ctx: Context, name: str) -> None:
    """Refuse an entry of `generations` that cannot be planned for the searched dataset."""
    data = ctx.settings.dataset
    generated(ctx, name, f"generations.{name}", data, reported_split(ctx, data))


def generator(ctx: Context, name: str, where: str) -> Stage:
    """Return the stage of a generator; `where` names the key that refers to it."""
    known = _generators(ctx)
    if name not in known:
        raise UserError(f"{where}: {name} is not a generator{nearest(name, list(known))}")
    require_name("generators", name)
    return ctx.entry("generators", name)


def _plan_published_generator(ctx: Context, name: str, entry: PublishedGenerator) -> Stage:
    at = f"generators.{name}"
    entry = at_commit(entry)
    if entry.source != "hub":
        try:
            check_generator(folder_of(entry))
        except UserError as error:
            raise UserError(f"{at}: {error}") from None
    return plan_published(ctx, "generator", at, entry)


def _trained(ctx: Context, name: str, entry: TrainedGenerator) -> Stage:
    """Plan the stage that trains a generator, from another one or from random weights."""
    at = f"generators.{name}"
    settings = ctx.settings
    data = entry.dataset or settings.train_on or settings.dataset
    require_split(ctx, data, entry.split, f"{at}: is trained")
    _check_target(ctx, at, entry, data)
    seed = ctx.seed(entry.train.seed)
    if entry.start is None:
        start = _plan_new(ctx, name, entry, seed)
    elif entry.start in _generators(ctx):
        for key in ("layers", "decoder_layers"):
            if getattr(entry, key) is not None:
                raise UserError(
                    f"{at}.{key} cannot be set beside start: {entry.start}, a generator, which brings its own; "
                    "leave it out"
                )
        start = generator(ctx, entry.start, f"{at}.start")
    else:
        start = _plan_encoder_decoder(ctx, name, entry, seed)
    keys = ("prompt", "length", "target", "target_length", "split", "lora")
    own = json_of(entry, *keys) | {"train": json_of(entry.train) | {"seed": seed}}
    if entry.target == "sentence":
        own["match"] = ctx.dataset_entry(data).match
    upstream = {"dataset": dataset(ctx, data), "start": start}
    return ctx.stage("train_generator", data, name, own, upstream, ctx.execution(*TRAINING))


def _plan_new(ctx: Context, name: str, entry: TrainedGenerator, seed: int) -> Stage:
    """Plan the stage of a T5 with random weights."""
    params = json_of(entry, *NewGenerator.model_fields) | {"seed": seed}
    params["layers"] = entry.layers or NEW_LAYERS
    params["decoder_layers"] = entry.decoder_layers or NEW_LAYERS
    start = encoder(ctx, ctx.settings.encoder)
    shape = known_shape(ctx, start)
    if entry.hidden is None and shape and shape.hidden % entry.heads:
        raise UserError(
            f"generators.{name}.heads is {entry.heads}, which does not divide {shape.hidden}, the dimension of encoder "
            f"{ctx.settings.encoder}; allowed: {list_divisors(shape.hidden)}"
        )
    return ctx.stage("new_generator", "shared", name, params, {"encoder": start})


def list_divisors(number: int) -> str:
    """Return the divisors of a number.

    >>> list_divisors(12)
    '1, 2, 3, 4, 6, 12'
    """
    return ", ".join(str(each) for each in range(1, number + 1) if number % each == 0)


def _plan_encoder_decoder(ctx: Context, name: str, entry: TrainedGenerator, seed: int) -> Stage:
    """Plan the stage of an encoder with a decoder that both have an encoder's layers.

    Raises:
        UserError: there is no such encoder, its layers cannot decode, or it takes shorter texts.
    """
    at = f"generators.{name}"
    if entry.start != "encoder" and entry.start not in ctx.settings.encoders:
        known = ctx.list_names(("generators", "encoders"))
        hint = nearest(str(entry.start), known)
        raise UserError(f"{at}.start: {entry.start} is neither a generator nor an encoder{hint}")
    if entry.lora is not None:
        raise UserError(
            f"{at}.lora is set, but the decoder of a start that is an encoder is new in part and learns whole; "
            "leave it out"
        )
    start = encoder(ctx, _start_encoder(ctx, entry))
    if KINDS[start.kind].tokens != KINDS["encoder"].tokens:
        raise UserError(
            f"{at}.start is {entry.start}, which reads words by their characters; name another encoder"
        )
    _check_start(ctx, at, entry, start)
    params: Json = {**json_of(entry, "layers", "decoder_layers"), "seed": seed}
    return ctx.stage("encoder_decoder", "shared", name, params, {"encoder": start})


def _check_start(ctx: Context, at: str, entry: TrainedGenerator, start: Stage) -> None:
    """Refuse an encoder whose layers cannot decode or are too few, or that reads shorter texts, as far as known."""
    config = read_encoder_config(encoder_of(start))
    if config is not None:
        check_decoding(config, f"{at}.start: {entry.start}")
        positions = read_positions(config)
        for key in ("length", "target_length"):
            if positions is not None and getattr(entry, key) > positions:
                raise UserError(
                    f"{at}.{key} is {getattr(entry, key)}, but {entry.start} takes {positions} tokens; lower it"
                )
    shape = known_shape(ctx, start)
    for key in ("layers", "decoder_layers"):
        layers = getattr(entry, key)
        if layers is not None and shape is not None and layers > shape.layers:
            raise UserError(
                f"{at}.{key} is {layers}, but {entry.start} has {shape.layers}; lower it"
            )


def _check_target(ctx: Context, at: str, entry: TrainedGenerator, data: str) -> None:
    """Refuse a generator whose input does not fit its target, or whose dataset cannot have the target."""
    labelled = ctx.dataset_entry(data)
    if entry.target != "query":
        if QUERY not in entry.prompt:
            raise UserError(
                f"{at}.prompt names no query, but target is {entry.target}, which it learns to write of one; "
                f"write {QUERY}"
            )
        if entry.target == "title" and labelled.title is False:
            raise UserError(
                f"{at}.target is title, but datasets.{data}.title is false; name another target"
            )
        return
    if PASSAGE not in entry.prompt:
        raise UserError(
            f"{at}.prompt names no passage, but it learns to write passages' queries; write {PASSAGE}"
        )
    if labelled.relevance == "answers":
        raise UserError(
            f"{at}: learns from relevant passages, but dataset {data} has answers; name a dataset with qrels"
        )


def generated(ctx: Context, name: str, where: str, data: str, split: str | None = None) -> Stage:
    """Plan the stage that generates an entry of `generations` for a dataset; `where` names the key that refers to it.

    Args:
        split: the split of queries; None: an entry that reads queries is refused.
    Raises:
        UserError: it is unknown, its prompt has no place for its input, or a server would write the same text again and
            again.
    """
    known = ctx.settings.entries("generations", Generation)
    if name not in known:
        raise UserError(
            f"{where}: {name} is not an entry of generations{nearest(name, list(known))}"
        )
    require_name("generations", name)
    at = f"generations.{name}"
    entry = known[name]
    by = _generators(ctx).get(entry.by)
    if by is None:
        raise UserError(
            f"{at}.by: {entry.by} is not a generator{nearest(entry.by, list(_generators(ctx)))}"
        )
    if entry.of == "queries" and split is None:
        raise UserError(
            f"{where}: generations.{name} reads queries; passages' texts are needed (of: passages)"
        )
    needed = PASSAGE if entry.of == "passages" else QUERY
    if needed not in by.prompt:
        raise UserError(
            f"generators.{entry.by}.prompt lacks {needed}, but {at} reads {entry.of}; write {needed} in it"
        )
    params = json_of(entry, *Decoding.model_fields) | {
        "side": entry.of,
        "seed": ctx.seed(entry.seed),
    }
    params |= {"prompt": by.prompt, "passages": entry.passages}
    if entry.of == "queries":
        assert split is not None
        require_split(ctx, data, split, f"{at}: reads queries")
        params["split"] = split
    upstream = {"dataset": dataset(ctx, data)}
    execution: Json = {}
    if isinstance(by, AskedGenerator):
        _check_asked(at, entry, by)
        params["asked"] = json_of(by, *LanguageModel.model_fields) | {"url": by.endpoint.url}
        execution["endpoint"] = json_of(by.endpoint)
    else:
        assert isinstance(by, ReadsTokens)
        params["length"] = by.length
        upstream["generator"] = generator(ctx, entry.by, f"{at}.by")
    return ctx.stage("generated", data, name, params, upstream, execution)


@plans_reference("texts of queries")
def plan_texts_of_queries(ctx: Context, name: Name, scope: Scope) -> dict[str, Stage]:
    """Plan the texts that a key names, for the queries that are searched for; see `QueryTexts`."""
    assert isinstance(name.section, QueryTexts)
    [entry] = name.names
    texts = generated(ctx, entry, name.path, scope.dataset, scope.split)
    if texts.values["side"] != "queries":
        raise UserError(
            f"{name.path}: generations.{entry} reads passages; queries' texts are needed (of: queries)"
        )
    _check_number(name.path.rpartition(".")[0], name.section.number, entry, texts, "query")
    return {name.role: texts}


def _check_number(at: str, number: int, entry: str, texts: Stage, side: str) -> None:
    """Refuse more texts of a passage or query than are generated."""
    if number > texts.values["number"]:
        have = f"generations.{entry} has {texts.values['number']} of a {side}"
        raise UserError(f"{at}.number is {number}, but {have}; lower it, or raise that")


def _check_asked(at: str, entry: Generation, by: AskedGenerator) -> None:
    """Refuse settings that a server ignores, and several texts if it would write the same one again and again."""
    if entry.method == "beam":
        raise UserError(
            f"{at}.method is beam, but {entry.by} is behind a server, which searches no beams; choose another"
        )
    if entry.method == "greedy" and by.temperature != 0:
        # null: the server's own temperature, by which most servers draw
        temperature = "null" if by.temperature is None else f"{by.temperature:g}"
        drawn = f"generators.{entry.by}.temperature is {temperature}, by which its server draws"
        raise UserError(f"{at}.method is greedy, but {drawn}; set that to 0, or leave method out")
    if entry.number > 1 and by.temperature == 0:
        same = f"generators.{entry.by}.temperature is 0, by which all are one"
        raise UserError(f"{at}.number is {entry.number}, but {same}; raise it, or set number to 1")


# Keys of a generation that set how a model in this process writes.
_WRITING_HERE = ("method", "top_k", "top_p", "temperature", "beams", "precision", "batch_tokens")
# Those of only some methods.
_METHODS_OF_KEYS: dict[str, tuple[str, ...]] = {
    "top_k": ("top_k",),
    "top_p": ("nucleus",),
    "temperature": ("top_k", "nucleus"),
    "beams": ("beam",),
}


@lists_unused_keys("generations")
def list_unused_generation_keys(settings: Settings) -> list[str]:
    """Return a line for each key that an entry of `generations` sets and its server or method ignores."""
    generators: dict[str, GeneratorEntry] = getattr(settings, "generators", {})
    lines = []
    for name, entry in settings.entries("generations", Generation).items():
        by = generators.get(entry.by)
        if entry.passages is not None and entry.of == "queries":
            lines.append(f"generations.{name}.passages has no effect: {entry.by} reads queries")
        if not isinstance(by, AskedGenerator):
            for key, methods in _METHODS_OF_KEYS.items():
                if key in entry.model_fields_set and entry.method not in methods:
                    of = f"it is of method {' and '.join(methods)}, but method is {entry.method}"
                    lines.append(f"generations.{name}.{key} has no effect: {of}")
            continue
        set_keys = [key for key in _WRITING_HERE if key in entry.model_fields_set]
        if set_keys and entry.method != "greedy":
            keys = f"generators.{entry.by}.temperature and extra_body say how that writes"
            lines.append(
                f"generations.{name}: {', '.join(set_keys)} have no effect: {entry.by} is behind a server; {keys}"
            )
    return lines


def _scores(ctx: Context, by: str, where: str, texts: Stage, data: str) -> Stage:
    """Plan the stage that scores generated texts with their passages, by a cross-encoder or a dual encoder."""
    if by in ctx.settings.ensembles:
        members = ", ".join(ctx.settings.ensembles[by].of)
        raise UserError(
            f"{where}: {by} is an ensemble; name one model, such as one of its: {members}"
        )
    if ctx.untrained(by) or _is_dual(ctx, by):
        model = dual_encoder(ctx, by, where)
        read = tokens_of_dual(ctx, by, model, data)
    else:
        duals = [name for name in ctx.settings.models if _is_dual(ctx, name)]
        model, read = judge_with_tokens(ctx, by, where, data, CROSS_PARTS, duals)
    params: Json = {**ctx.scoring, "number": texts.values["number"]}
    params |= {
        "query_length": ctx.settings.lengths.query,
        "passage_length": read.values["passage_length"],
    }
    upstream = {"dataset": dataset(ctx, data), "generated": texts, "model": model, "tokens": read}
    return ctx.stage("score_generated", data, f"{texts.name}.{by}", params, upstream)


def _is_dual(ctx: Context, name: str) -> bool:
    """Return whether a name is that of a trained dual encoder, or of a joint training's retriever."""
    entry = ctx.settings.models.get(ctx.model_name(name))
    if entry is None or entry.objective not in DUAL_PARTS:
        return False
    return entry.objective == "dual" or name.endswith(f".{PARTS['dual']}")


@plans_dataset("expanded")
def plan_expanded(ctx: Context, name: str, entry: Expanded) -> Stage:
    """Plan the stage of a dataset whose passages have appended generated queries."""
    own = (other for other in _expansions(ctx) if name == f"{entry.of}-{other}")
    at = f"datasets.{name}" if name in ctx.settings.datasets else f"expansions.{next(own)}"
    if entry.drop_share is not None and entry.drop_by is None:
        raise UserError(
            f"{at}.drop_share is {entry.drop_share:g}, but nothing scores queries; name drop_by"
        )
    base = find_base(at, entry)
    upstream = _made_of(ctx, at, entry, base)
    if entry.drop_by:
        upstream["scores"] = _scores(
            ctx, entry.drop_by, f"{at}.drop_by", upstream["generated"], base
        )
    return make_dataset(ctx, name, entry, upstream)


@plans_dataset("generated_queries")
def plan_queries(ctx: Context, name: str, entry: GeneratedQueries) -> Stage:
    """Plan the stage of a dataset of generated queries."""
    at = f"datasets.{name}"
    if entry.best_by and entry.best is None:
        raise UserError(
            f"{at}.best_by is {entry.best_by}, but all queries stay; say best: how many"
        )
    if "found_within" in entry.model_fields_set and not entry.found_by:
        raise UserError(
            f"{at}.found_within is {entry.found_within}, but all queries stay; name found_by, a run"
        )
    base = find_base(at, entry)
    upstream = _made_of(ctx, at, entry, base)
    if entry.best_by:
        upstream["scores"] = _scores(
            ctx, entry.best_by, f"{at}.best_by", upstream["generated"], base
        )
    if entry.found_by:
        every = _all_queries(ctx, name, entry, base)
        deepest = run_depth(ctx, "train", every)
        if entry.found_within > deepest:
            problem = (
                f"{at}.found_within is {entry.found_within}, but runs on train are {deepest} deep"
            )
            raise UserError(f"{problem}; raise depth.{find_depth_key(ctx, 'train', every)}")
        upstream["all"] = dataset(ctx, every)
        upstream["run"] = run(ctx, entry.found_by, "train", f"{at}.found_by", every)
    return make_dataset(ctx, name, entry, upstream)


def _made_of(
    ctx: Context, at: str, entry: Expanded | GeneratedQueries, base: str
) -> dict[str, Stage]:
    """Return the base of a derived dataset and its texts; a `UserError` if there are too few per passage."""
    texts = generated(ctx, entry.from_, f"{at}.from", base)
    _check_number(at, entry.number, entry.from_, texts, "passage")
    return {"of": dataset(ctx, base), "generated": texts}


def _all_queries(ctx: Context, name: str, entry: GeneratedQueries, base: str) -> str:
    """Return the name of the dataset with all generated queries, which is added to the datasets if it is missing."""
    label = f"{name}.{ALL}"
    notes = notes_of(ctx.dataset_entry(base), NOTES_OF_THE_WHOLE)
    keys: Json = {
        "source": "generated_queries",
        "of": base,
        "from": entry.from_,
        "number": entry.number,
        **notes,
    }
    ctx.enter_dataset(label, GeneratedQueries.model_validate(keys), f"datasets.{name}")
    return label


def enter_expanded(ctx: Context, name: str, data: str) -> str:
    """Return the name of the dataset whose passages an entry of `expansions` searches.

    The dataset is added to the others if it is missing.
    """
    label = f"{data}-{name}"
    keys = _expansions(ctx)[name].model_dump(include=set(Appended.model_fields))
    notes = notes_of(ctx.dataset_entry(data), NOTES_OF_FILES)
    expanded = Expanded.model_validate({"source": "expanded", "of": data, **keys, **notes})
    ctx.enter_dataset(label, expanded, f"expansions.{name}")
    return label


@plans_run("expansions")
def plan_expansion(ctx: Context, name: str, split: str, where: str, data: str) -> Stage:
    """Plan a run over passages with appended generated queries as one over the passages themselves."""
    entry = _expansions(ctx)[name]
    expanded = enter_expanded(ctx, name, data)
    with ctx.opening("expansions", name):
        inputs = plan_references(ctx, entry, f"expansions.{name}", Scope(expanded, split))
    upstream = {"dataset": dataset(ctx, data), "expanded": dataset(ctx, expanded), **inputs}
    return ctx.stage("expansion", data, f"{name}.{split}", searched(ctx, split, data), upstream)


@checks_entry("expansions")
def check_expansion(ctx: Context, name: str) -> None:
    """Refuse an entry whose passages, or whose run over them, cannot be planned."""
    data = ctx.settings.dataset
    dataset(ctx, enter_expanded(ctx, name, data))
    run(ctx, name, reported_split(ctx, data), f"expansions.{name}.of", data)
