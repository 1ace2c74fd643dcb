"""Plan the stages of encoders with source `pretrain`."""

from tandem.config.representations import is_single
from tandem.contrib.pretraining.options import NewEncoder, PretrainedEncoder
from tandem.errors import UserError
from tandem.plan.context import TRAINING, Context, json_of, plans_encoder, plans_tokenizer
from tandem.plan.dataset_stages import dataset
from tandem.plan.graph import Stage
from tandem.plan.sizes import known_shape
from tandem.plan.starting_encoders import encoder, tokens
from tandem.plan.towers import described_representation, towers
from tandem.stages.base import Json


@plans_encoder("pretrain")
def plan_pretraining(ctx: Context, name: str, entry: PretrainedEncoder) -> Stage:
    """Return the stage that pre-trains an encoder."""
    data = _name_dataset(ctx, name, entry)
    with ctx.opening("encoders", name):
        if entry.start:
            start = encoder(ctx, entry.start, f"encoders.{name}.start")
        else:
            start = plan_vocabulary(ctx, name, entry)
    if entry.objective != "crop" and _count_layers(ctx, entry) == 0:
        raise UserError(
            f"encoders.{name}.objective is {entry.objective}, but an encoder without layers learns by crop alone"
        )
    _check_skipping(ctx, name, entry, start)
    vectors = towers(ctx, name)
    _check_vectors(name, entry, vectors)
    train = json_of(entry.train) | {"seed": ctx.seed(entry.train.seed)}
    params = {"objective": entry.objective, **vectors, "train": train}
    upstream = {"start": start, "tokens": tokens(ctx, name, data, "alone")}
    return ctx.stage("pretrain", data, name, params, upstream, ctx.execution(*TRAINING))


@plans_tokenizer("pretrain")
def plan_vocabulary(ctx: Context, name: str, entry: PretrainedEncoder) -> Stage:
    """Return the stage that learns a tokenizer from a corpus and draws the first weights."""
    data = _name_dataset(ctx, name, entry)
    lengths = ctx.settings.lengths
    side = max(("passage", "query"), key=lambda each: getattr(lengths, each))
    # rows of a batch are filled up to a multiple of 8 tokens
    longest = -(-(getattr(lengths, side) + 2) // 8) * 8
    if longest > entry.positions:
        raise UserError(
            f"encoders.{name}.positions is {entry.positions}, but lengths.{side} needs {longest}; raise it"
        )
    params = json_of(entry, *NewEncoder.model_fields) | {"seed": ctx.seed(entry.train.seed)}
    return ctx.stage("vocabulary", data, name, params, {"dataset": dataset(ctx, data)})


def _name_dataset(ctx: Context, name: str, entry: PretrainedEncoder) -> str:
    """Return the name of the dataset whose passages an encoder learns from; refuse an unknown one."""
    if entry.dataset is None:
        return ctx.settings.dataset
    ctx.dataset_entry(entry.dataset, f"encoders.{name}.dataset")
    return entry.dataset


def _check_vectors(name: str, entry: PretrainedEncoder, vectors: Json) -> None:
    """Refuse a start that represents a text by anything other than one vector pooled from its last states."""
    made = described_representation(vectors)
    where = f"encoders.{name}.start is {entry.start}"
    if not is_single(made):
        raise UserError(
            f"{where}, which is of representation {made.type}; pre-training starts from single vectors: "
            f"give its entry of encoders representation: single"
        )
    if layers := [key for key in ("dense", "dim") if vectors.get(key)]:
        raise UserError(
            f"{where}, which has {' and '.join(layers)}; pre-training starts from an encoder without"
        )


def _check_skipping(ctx: Context, name: str, entry: PretrainedEncoder, start: Stage) -> None:
    """Refuse a short head over the states of a layer that is not before the last, if the number of layers is known."""
    early = getattr(entry.train, "skip_from", None)
    if early is None:
        return
    layers = _count_layers(ctx, entry)
    if layers is None and (shape := known_shape(ctx, start)):
        layers = shape.layers
    if layers is not None and early >= layers:
        has = f"the encoder has {layers} layers; allowed: below {layers}"
        raise UserError(f"encoders.{name}.train.skip_from is {early}, but {has}")


def _count_layers(ctx: Context, entry: PretrainedEncoder) -> int | None:
    """Return the number of layers of an encoder that the project trains from scratch.

    None if it starts from a published encoder, which planning does not read.
    """
    if entry.start is None:
        return entry.layers
    start = ctx.settings.encoders.get(entry.start)
    return _count_layers(ctx, start) if isinstance(start, PretrainedEncoder) else None
