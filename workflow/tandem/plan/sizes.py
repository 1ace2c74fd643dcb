"""Find the sizes of an encoder, and check what must fit them: lengths of texts, frozen layers, cuts of its vectors.

Sizes come from the configuration, from an encoder's files if they are here, or from its entry's `shape`, so that most
mistakes are reported before anything runs. Training, encoding and re-ranking refuse the others when they begin.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Self

from tandem.config.base import Section
from tandem.config.encoders import START_BLOCKS, Published, Shape
from tandem.config.models import ModelEntry
from tandem.config.settings import Settings
from tandem.errors import UserError
from tandem.models.described import HIDDEN_SIZE_KEYS
from tandem.models.folders import (
    LENGTH_STEP,
    PAIR_LENGTH_STEP,
    find_encoder_files,
    read_model_json,
    read_positions,
)
from tandem.models.hub import fetch_description, find_package
from tandem.plan.context import Context
from tandem.plan.graph import Stage
from tandem.stages.base import Json

# transformers' families call the same numbers by different names.
_NAMES = {
    "layers": ("num_hidden_layers", "n_layers", "num_layers"),
    "hidden": HIDDEN_SIZE_KEYS,
    "feed_forward": ("intermediate_size", "hidden_dim", "d_ff"),
    "vocabulary": ("vocab_size",),
    "positions": ("max_position_embeddings",),
}
CONFIG = "config.json"
MOST_SPECIAL = 4  # tokens around a pair, in any family here


@dataclass(frozen=True)
class EncoderShape:
    """Hold the sizes of an encoder."""

    layers: int
    hidden: int
    feed_forward: int
    vocabulary: int
    positions: int = 512

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Return the shape in a Hugging Face `config.json`; a KeyError naming the number that it lacks."""
        sizes = {}
        for name, keys in _NAMES.items():
            present = [config[key] for key in keys if key in config]
            if not present and name != "positions":
                raise KeyError(keys[0])
            if present:
                sizes[name] = int(present[0])
        return cls(**sizes)

    @property
    def parameters(self) -> int:
        """Return the number of weights of BERT without its pooling layer: embeddings, matrices, biases and norms."""
        biases_and_norms = 9 * self.hidden + self.feed_forward
        layer = self.products + biases_and_norms
        # two segments, and the norm's weight and bias
        embeddings = self.vocabulary + self.positions + 4
        return embeddings * self.hidden + self.layers * layer

    @property
    def products(self) -> int:
        """Return the number of weights in a layer's matrices: 4 h² of attention, 2 h f of the feed-forward network."""
        return 4 * self.hidden**2 + 2 * self.hidden * self.feed_forward

    def forward(self, texts: float, tokens: float) -> float:
        """Return the floating-point operations of one forward pass; a multiplication and its addition are two.

        2 (4 h² + 2 h f) per token and layer for the matrix products, 4 n h for attention over n tokens (Kaplan et al.
        2020, App. A, with attention in full); a backward pass costs twice as many again.

        Args:
            texts: number of texts (or pairs).
            tokens: their mean length, special tokens included.
        """
        of_token = 2 * self.products + 4 * tokens * self.hidden
        return texts * tokens * self.layers * of_token

    def activations(self, tokens: float, length: float, bytes_each: int = 2) -> float:
        """Return the bytes of the activations that the backward pass of so many tokens in texts of `length` needs.

        Per token and layer about 34 h bytes at two bytes a number, and 5 n a with attention in full (Korthikanti et al.
        2022, Eq. 1); heads are of 64 dimensions.
        """
        heads = max(1, self.hidden // 64)
        numbers_of_token = 17 * self.hidden + 2.5 * length * heads
        return tokens * self.layers * numbers_of_token * bytes_each


def encoder_of(stage: Stage) -> Stage:
    """Return the stage that determines the sizes: the encoder behind token ids, or the start of a pre-trained one."""
    for role in ("encoder", "start"):
        if role in stage.upstream:
            return encoder_of(stage.upstream[role])
    return stage


def shape_of(stage: Stage, settings: Settings) -> EncoderShape:
    """Return the sizes of an encoder, of which perhaps only the first `layers` are used.

    Args:
        stage: an encoder's stage, or the token ids of its tokenizer.
        settings: the configuration, whose encoders and re-rankers may state the sizes of their files.
    """
    encoder = encoder_of(stage)
    params = encoder.values
    if all(params.get(key) is not None for key in _NAMES):  # its vocabulary is learned here
        return EncoderShape(*(int(params[key]) for key in _NAMES))
    if folder := _files(encoder):
        shape = EncoderShape.of(read_model_json(folder / CONFIG))
    elif entry := _entry_shape(params, settings):
        shape = EncoderShape(**entry.model_dump(exclude_none=True))
    else:
        raise UserError(
            f"encoder {encoder.name}: its sizes are not known here; make it (`snakemake {encoder.manifest}`), or say "
            f"encoders.<name>.shape: {{layers, hidden, feed_forward, vocabulary}}"
        )
    used = params.get("layers") or shape.layers
    return replace(shape, layers=min(shape.layers, used))


def _files(encoder: Stage) -> Path | None:
    """Return the folder of an encoder's files, if it is here."""
    params = encoder.values
    folders: list[Path] = []
    if Path(encoder.manifest).is_file():
        folders.append(Path(encoder.folder) / "hf")
    if params.get("source") == "package":
        folders.append(find_package(params["package"], params["folder"] or ""))
    if "path" in encoder.execution:
        folders.append(Path(encoder.execution["path"]))
    # the files that describe it were read
    if "vectors" in encoder.execution and params.get("source") == "hub":
        description = fetch_description(params["name"], params["revision"], fetch=False)
        if description:
            folders.append(description)
    for files in map(find_encoder_files, folders):
        if (files / CONFIG).is_file():
            return files
    return None


def _entry_shape(params: Mapping[str, Any], settings: Settings) -> Shape | None:
    """Return the `shape` of the entry that an encoder's parameters are from."""
    name = params.get("name") or params.get("package")
    for block in ("encoders", "rerankers", *START_BLOCKS):
        for entry in settings.entries(block, Section).values():
            shape: Shape | None = getattr(entry, "shape", None)
            if shape and isinstance(entry, Published) and (entry.name or entry.package) == name:
                return shape
    return None


def dimension(ctx: Context, vectors: Json, encoder: Stage) -> int | None:
    """Return how many numbers the vectors of an encoder have, if `vectors`, its files or its entry show it.

    Args:
        vectors: how it makes vectors, as `towers` or a model's parameters describe it.
    """
    if vectors.get("dim") or vectors.get("dense"):
        return vectors.get("dim")
    shape = known_shape(ctx, encoder)
    return shape.hidden if shape else None


def known_shape(ctx: Context, encoder: Stage) -> EncoderShape | None:
    """Return the sizes of an encoder, as `shape_of` does; None if nothing here states them."""
    try:
        return shape_of(encoder, ctx.settings)
    except (UserError, KeyError):
        return None


def check_lengths(ctx: Context, name: str, stage: Stage, part: str, passages: int = 1) -> None:
    """Refuse `lengths` that make texts, or pairs of them, longer than an encoder takes.

    Args:
        stage: the stage of the encoder.
        part: `dual` reads single texts, `cross` pairs of a query and a passage.
        passages: number of passages in a pair; 2 for a model that compares passages.
    """
    lengths = ctx.settings.lengths
    encoder = encoder_of(stage)
    limit = count_positions(encoder, ctx.settings)
    if limit is None:
        return
    is_pair = part == "cross"
    # inputs are padded, and their padding takes positions, too
    step = PAIR_LENGTH_STEP if is_pair else LENGTH_STEP
    unreached = limit % step
    limit -= unreached
    takes = f"{name} takes {limit}"
    if unreached:
        takes += f" (of its {limit + unreached}, in steps of {step})"
    of_pair = lengths.query + passages * lengths.passage
    texts = of_pair if is_pair else max(lengths.query, lengths.passage)
    if texts + passages * MOST_SPECIAL <= limit:
        return

    special = _special_tokens(_files(encoder), is_pair)
    if is_pair:
        # the special tokens between the texts of a pair are between two passages, too
        between = special - _special_tokens(_files(encoder), False)
        special += (passages - 1) * between
    needed = texts + special
    if not is_pair and needed > limit:
        side = "query" if lengths.query > lengths.passage else "passage"
        most = f"{special} of them special ones; allowed: ≤ {limit - special}"
        raise UserError(f"lengths.{side} is {texts}, but {takes}, {most}")
    needed = min(needed, lengths.pair or needed)  # where pairs are cut
    if needed > limit:
        twice = " twice" if passages > 1 else ""
        raise UserError(
            f"lengths allow pairs of {needed} tokens (query {lengths.query}, passage {lengths.passage}{twice}, "
            f"special {special}), but {takes}; "
            f"lower one, or set lengths.pair to {limit} or less, which cuts pairs"
        )


def count_positions(encoder: Stage, settings: Settings) -> int | None:
    """Return the number of positions of an encoder, by its parameters, files or entry; None if none states it."""
    own = encoder.values.get("positions")
    if own is not None:
        return int(own)
    config = read_encoder_config(encoder)
    if config is not None:
        return read_positions(config)
    shape = _entry_shape(encoder.values, settings)
    return shape.positions if shape else None


@lru_cache(maxsize=64)
def read_encoder_config(encoder: Stage) -> Json | None:
    """Return the `config.json` of an encoder, once for all variants of a configuration; None if it is not here."""
    folder = _files(encoder)
    return read_model_json(folder / CONFIG) if folder else None


@cache
def _special_tokens(folder: Path | None, pair: bool) -> int:
    """Return the number of special tokens around a text or a pair, by the tokenizer's files.

    Without these files it is that of BERT.
    """
    path = folder / "tokenizer.json" if folder else Path()
    if not path.is_file():
        return 3 if pair else 2
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no class of its own
        raise UserError(
            f"{path}: cannot be read: {str(error).splitlines()[0]}; copy the tokenizer anew"
        ) from None
    return int(tokenizer.num_special_tokens_to_add(pair))


def check_model(ctx: Context, at: str, entry: ModelEntry, encoder: Stage, params: Json) -> None:
    """Refuse more frozen layers than an encoder or the query encoder has, and cuts of vectors that do not shorten them.

    Args:
        at: the path of the model's entry.
        params: the parameters of its stage.
    """
    frozen, kept = entry.train.freeze_layers, getattr(entry, "query_layers", None)
    shape = known_shape(ctx, encoder) if frozen or kept else None
    for key, layers in (("train.freeze_layers", frozen), ("query_layers", kept)):
        if shape and layers and layers >= shape.layers:
            has = f"the encoder has {shape.layers} layers; allowed: below {shape.layers}"
            raise UserError(f"{at}.{key} is {layers}, but {has}")
    # the layers of the entry itself, or of the trained model that it starts from
    left = params.get("query_layers")
    if frozen and left and frozen >= left:
        has = f"the encoder of queries has {left} layers; allowed: below {left}"
        raise UserError(f"{at}.train.freeze_layers is {frozen}, but {has}")
    cut = max(getattr(entry.train, "matryoshka", ()), default=0)
    size = dimension(ctx, params, encoder) if cut else None
    if size and cut >= size:
        raise UserError(
            f"{at}.train.matryoshka is {cut}, but vectors have {size} numbers; allowed: below {size}"
        )
