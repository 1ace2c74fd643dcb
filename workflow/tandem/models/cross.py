"""Cross-encoders: query and passage are read together; a head on the pooled vector gives the score.

The head is linear, or the encoder's classification head as transformers has it. Where a family's classification head
has a tanh, a linear head on the first token is also saved in this form, so that `AutoModelForSequenceClassification`
gives the same scores. A package may add heads that run the model themselves (`pair_prompts`). Stage `reranker` turns a
published cross-encoder into one of these.
"""

import copy
import inspect
import json
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tandem.config.base import Pooling
from tandem.errors import UserError
from tandem.models.device import place_all, precision
from tandem.models.encoding import SIDE_BY_SIDE, encode_and_pool, make_equal_batches
from tandem.models.folders import PAIR_LENGTH_STEP, WEIGHTS_FILE
from tandem.models.heads import (
    HEAD_LAYERS,
    check_reranker,
    find_relevant_label,
    read_saved_activation,
)
from tandem.models.hub import (
    check_length,
    check_weights,
    from_folder,
    load_encoder,
    load_tokenizer,
    save_encoder,
)
from tandem.models.pair_prompts import (
    PLAIN_PAIR,
    Around,
    PairOptions,
    ReadingHead,
    adapt_template,
    reading_head,
)
from tandem.models.published import check_pairs, check_pooling
from tandem.models.ragged import Ids, Ragged, round_up
from tandem.models.saving import describe_cross_encoder
from tandem.models.tokens import Inputs, Template, TokenTexts
from tandem.stages.base import Params
from tandem.stages.training import CROSS_FORMS
from tandem.store.files import write_json
from tandem.store.job import Job, load, writing

# Where oneDNN multiplies without AMX, the number of rows changes no bit: no batch is filled up, and a finer step than
# `PAIR_LENGTH_STEP` pads less.
FINE_STEP = 8
# first weight of a `segments` head: 1 / 0.05, the usual temperature of cosines
COSINE_SCALE = 20.0
_HEAD_FILE = f"2_Dense/{WEIGHTS_FILE}"
# A power of two, so that scaling by it and back loses no bit. The relative error of tanh(c x) ≈ c x is x² c² / 3:
# two parts in a million for x = 10, two in a hundred thousand for x = 30.
_SMALL_SCALE = 2.0**-12


class CrossEncoder(nn.Module):
    """Hold an encoder, pooling and a head: one logit per pair; its sigmoid is the probability of relevance.

    With `cls` pooling this is RocketQAv2's re-ranker: a linear layer on the raw vector of [CLS] (§3.2). With `segments`
    the pair is read together as well, but the head reads a single number, the cosine of the query's and the passage's
    mean vector: a cross-encoder that starts from a dual encoder's tower then starts near the dual encoder's scores.
    With `classifier` pooling and head are those of the family's `…ForSequenceClassification`, as published
    cross-encoders have them. With `decoder` the encoder has a decoder, and the score is computed from the words that it
    may write: monoT5, duoT5, RankT5.

    Attributes:
        options: what is read around the texts; two passages count as one text, with `separator` between them.
        around: token ids of a prompt around the texts; None: only special tokens are around them.
        packed: tokens that a packed row is filled up to in training; None pads pairs. Set by `accelerate`.
        any_rows: whether `score` may compute any number of pairs at once. Set by `accelerate`.
    """

    packed: int | None = None
    packs = True
    any_rows = False

    def __init__(
        self,
        encoder: nn.Module,
        pooling: str,
        head: "Classifier | ReadingHead | None" = None,
        options: PairOptions = PLAIN_PAIR,
        around: Around | None = None,
    ) -> None:
        super().__init__()
        config: Any = encoder.config
        self.encoder = encoder
        self.pooling = pooling
        self.options = options
        self.around = around
        self.dropout = nn.Dropout(getattr(config, "hidden_dropout_prob", 0.1))
        self.head: nn.Module = head or nn.Linear(
            1 if pooling == "segments" else int(config.hidden_size), 1
        )

    @classmethod
    def start(cls, folder: Path, pooling: str, options: PairOptions = PLAIN_PAIR) -> Self:
        """Return a cross-encoder from a pre-trained encoder; its new head is drawn from torch's generator.

        With `classifier` the folder's own head is kept if it has one label; with `decoder` there is no new head.

        Raises:
            UserError: the encoder cannot be pooled this way, or its tokenizer puts nothing between two texts.
        """
        around = Around.of(load_tokenizer(folder), options.prompt) if options.prompt else None
        if pooling in reading_head:
            whole, reading = reading_head[pooling].load(folder, options.words)
            return cls(whole, pooling, reading, options, around)
        if around is None:
            check_pairs(folder)
        if pooling == "classifier":
            encoder, classifier = Classifier.load(folder, new=True)
            return cls(encoder, pooling, classifier, options, around)
        model = cls(load_encoder(folder), pooling, None, options, around)
        check_pooling(model.encoder, pooling, folder, around=around)
        head: Any = model.head
        if pooling == "segments":
            nn.init.constant_(head.weight, COSINE_SCALE)
            nn.init.constant_(head.bias, -COSINE_SCALE / 2)  # probability 1/2 at a cosine of 1/2
        else:
            nn.init.normal_(head.weight, std=0.02)
            nn.init.zeros_(head.bias)
        return model

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the cross-encoder that `save` wrote.

        Raises:
            UserError: its pooling belongs to a package that is not present.
        """
        saved = read_cross(folder)
        options = PairOptions(**{name: saved[name] for name in PLAIN_PAIR.as_json()})
        around = Around.of(load_tokenizer(folder), options.prompt) if options.prompt else None
        pooling = saved["pooling"]
        if pooling in reading_head:
            whole, reading = reading_head[pooling].load(folder, options.words)
            return cls(whole, pooling, reading, options, around)
        if pooling == "classifier":
            encoder, classifier = Classifier.load(folder)
            return cls(encoder, pooling, classifier, options, around)
        if pooling not in (*get_args(Pooling), "segments"):
            known = ", ".join([*get_args(Pooling), "segments", "classifier", *reading_head])
            raise UserError(
                f"{folder / 'cross.json'}: pooling is {pooling}, which no package that is here reads; allowed: {known}"
            )
        model = cls(load_encoder(folder), pooling, None, options, around)
        load_head(folder, model.head)
        return model

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write a folder that transformers loads as the encoder, and sentence-transformers as a CrossEncoder.

        `AutoModelForSequenceClassification` loads it with the same scores, or refuses it: see `save_whole`.
        sentence-transformers has no module for `segments`, for prompts or for decoders; for these the model card shows
        how to compute scores.
        """
        save = None
        if not isinstance(self.head, ReadingHead):
            save = partial(
                save_whole,
                head=self.head,
                pooling=self.pooling,
                is_plain=self.options == PLAIN_PAIR,
            )
        save_encoder(self.encoder, tokenizer, folder, save)
        if isinstance(self.head, nn.Linear):
            save_head(folder, self.head)
            if self.pooling != "segments" and self.options == PLAIN_PAIR:
                describe_cross_encoder(folder, self.head.in_features, self.pooling)
        write_json(folder / "cross.json", {"pooling": self.pooling, **self.options.differences()})

    @cached_property
    def has_segments(self) -> bool:
        """Whether the encoder takes segment ids; T5 does not, although its tokenizer may produce them."""
        return "token_type_ids" in inspect.signature(self.encoder.forward).parameters

    def adapt(self, template: Template) -> Template:
        """Return the tokenizer's template, changed to the prompt and segments that this model reads."""
        return adapt_template(template, self.around, self.has_segments)

    def separator(self, template: Template) -> tuple[int, ...]:
        """Return the ids between two passages: those of the prompt, else those between the two texts of a pair."""
        return self.around.passages[1] if self.around else template.pair[1]

    def logits(self, inputs: Inputs, mode: str, packed: int | None, multiple: int) -> Tensor:
        """Return the scores of pairs, shape (pairs,), float32; see `encode_and_pool`."""
        if isinstance(self.head, ReadingHead):
            with precision(mode):
                written: Tensor = self.head(self.encoder, place_all(inputs.to_tensors(multiple)))
            return written
        pooling = self.head.pooling if isinstance(self.head, Classifier) else self.pooling
        vectors = encode_and_pool(self.encoder, inputs, pooling, mode, packed, multiple)
        if self.pooling == "segments":
            vectors = nn.functional.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=-1)[:, None]
        elif not isinstance(self.head, Classifier):
            vectors = self.dropout(vectors)
        scores: Tensor = self.head(vectors)[:, 0]
        return scores

    def forward(
        self,
        queries: TokenTexts,
        passages: TokenTexts,
        template: Template,
        mode: str,
        multiple: int = 1,
    ) -> Tensor:
        """Return the scores of pairs, computed as one batch, padded or packed.

        Args:
            queries, passages: token ids of each pair's texts, without special tokens.
            multiple: pad the length to a multiple of this; without effect where pairs are packed.
        Returns:
            Logits, shape (pairs,), float32.
        """
        inputs = self.join_texts(Ragged.of(queries), Ragged.of(passages), template)
        return self.logits(inputs, mode, self.packed, multiple)

    def join_texts(self, queries: Ragged, passages: Ragged, template: Template) -> Inputs:
        """Return pairs as the encoder reads them; with `segments` all tokens have type 0, as in a dual encoder."""
        inputs = self.adapt(template).pair_inputs(queries, passages)
        if self.pooling == "segments" and inputs.types is not None:
            inputs.types.fill(0)
        return inputs

    @torch.inference_mode()
    def score(
        self, queries: TokenTexts, passages: TokenTexts, template: Template, mode: str, budget: int
    ) -> Ids:
        """Return scores that do not depend on which pairs are scored together.

        Pairs are grouped by padded length (a multiple of `PAIR_LENGTH_STEP`) and computed in batches of a fixed number
        of rows, the last one filled up: a pair is then always computed in the same tensor shape. With `any_rows`
        lengths are multiples of `FINE_STEP` and nothing is filled up.

        Args:
            budget: tokens of a batch, see `make_equal_batches`; another budget may change last bits.
        Returns:
            Logits, shape (pairs,), float32.
        """
        self.eval()
        first = Ragged.of(queries)
        second = Ragged.of(passages)
        step = FINE_STEP if self.any_rows else PAIR_LENGTH_STEP
        read = self.adapt(template)
        lengths = read.pair_lengths(np.diff(first.offsets), np.diff(second.offsets))
        padded = round_up(lengths, step)
        scores = np.empty(len(padded), np.float32)

        def compute(part: tuple[Ids, int]) -> Tensor:
            """Return the logits of a batch of pairs, which is filled up to a number of rows."""
            batch, rows = part
            inputs = self.join_texts(first.take(batch), second.take(batch), template)
            inputs = inputs if self.any_rows else inputs.fill_up(rows)
            logits = self.logits(inputs, mode, packed=None, multiple=int(padded[batch[0]]))
            return logits[: len(batch)]

        batches = list(make_equal_batches(padded, budget))
        computed = list(load(SIDE_BY_SIDE)(compute, batches))
        # All are read in one go: reading each batch would leave a GPU idle until the next one arrives.
        if batches:
            rows = np.concatenate([batch for batch, _ in batches])
            scores[rows] = torch.cat(computed).cpu().numpy()
        return scores

    def check_lengths(self, query: int, passage: int, template: Template, where: str) -> None:
        """Refuse pairs that have, once padded, more tokens than the encoder has positions for.

        Args:
            query, passage: tokens of the longest query and passage, without special tokens.
            where: the folder whose limits these are, for the message.
        """
        passages = passage
        if self.options.passages > 1:
            passages += passage + len(self.separator(template))
        both = query + passages + self.adapt(template).extra[1]
        padded = round_up(min(both, template.longest_pair or both), PAIR_LENGTH_STEP)
        check_length(self.encoder, padded, f"{where}: query with passage, padded,")


class Classifier(nn.Module):
    """Apply the head of a `…ForSequenceClassification`, of one label or two, to the pooled vector; see `models.heads`.

    It reads the `cls` vector; ModernBERT's may read the `mean`.

    Args:
        whole: the model of transformers, encoder and head.
        path: its `config.json`, for messages.
    """

    def __init__(self, whole: Any, path: Path) -> None:
        from transformers.activations import ACT2FN

        super().__init__()
        config = whole.config
        layers = HEAD_LAYERS[whole.config.model_type]
        self.relevant = find_relevant_label(config.to_dict(), path)
        self.pooling: str = getattr(config, "classifier_pooling", "cls")
        self.dense = whole.get_submodule(layers.dense)
        self.out = whole.get_submodule(layers.out)
        self.norm = whole.get_submodule(layers.norm) if layers.norm else nn.Identity()
        self.activation: nn.Module = ACT2FN[getattr(config, layers.activation, layers.activation)]
        dropout = getattr(config, "classifier_dropout", None)
        self.dropout = nn.Dropout(
            getattr(config, "hidden_dropout_prob", 0.1) if dropout is None else dropout
        )

    def forward(self, vectors: Tensor) -> Tensor:
        """Return logits of relevance, shape (pairs, 1), of pooled vectors, shape (pairs, dim)."""
        states = self.norm(self.activation(self.dense(vectors)))
        logits: Tensor = self.out(self.dropout(states))
        relevant = self.relevant
        if relevant is None:
            return logits
        return logits[:, relevant, None] - logits[:, 1 - relevant, None]

    @classmethod
    def load(cls, folder: Path, new: bool = False) -> tuple[Any, Self]:
        """Return a folder's encoder and its head, in float32.

        Args:
            new: draw the head from torch's generator if the folder has none, or one of several labels.
        Raises:
            UserError: the family's head is not known here, or, unless `new`, the folder has no whole head.
        """
        from transformers import AutoModelForSequenceClassification

        options: dict[str, int] = {"num_labels": 1} if new else {}
        whole, report = from_folder(AutoModelForSequenceClassification, folder, **options)
        family = whole.config.model_type
        if family not in HEAD_LAYERS:
            raise UserError(
                f"{folder}: {family} has no head that is known here; allowed: {', '.join(HEAD_LAYERS)}"
            )
        if report["missing_keys"] and not new:
            raise UserError(
                f"{folder}: holds no {min(report['missing_keys'])}: a re-ranker needs its whole head"
            )
        if not new:
            check_weights(folder, report)
        # `AutoModel…` looks for the activation here, whichever file named it
        if activation := read_saved_activation(folder):
            whole.config.sentence_transformers = {"activation_fn": activation}
        head = cls(whole, folder / "config.json")
        encoder = whole.base_model
        if HEAD_LAYERS[family].dense.startswith(f"{whole.base_model_prefix}.pooler"):
            encoder.pooler = None  # it is a layer of the head now
        return encoder, head


def save_head(folder: Path, head: nn.Module) -> None:
    """Write a linear head as a module of its own, as sentence-transformers does."""
    (folder / _HEAD_FILE).parent.mkdir()
    weights = {
        f"linear.{name}": weight.detach().cpu().contiguous()
        for name, weight in head.named_parameters()
    }
    save_file(weights, folder / _HEAD_FILE)


def load_head(folder: Path, head: nn.Module) -> None:
    """Load the weights that `save_head` wrote into a linear head."""
    weights = load_file(folder / _HEAD_FILE)
    head.load_state_dict({name: weights[f"linear.{name}"] for name in ("weight", "bias")})


def save_whole(
    encoder: Any, folder: Path, head: nn.Module, pooling: str, is_plain: bool = True
) -> None:
    """Write an encoder and its head as one `…ForSequenceClassification`.

    If the family's head cannot compute the same, an empty tensor takes its place: `AutoModelForSequenceClassification`
    then refuses the folder instead of drawing a head at random, and `AutoModel` ignores the tensor. The same is done
    for pairs that are not `is_plain`, as the tokenizer does not write their prompt.
    """
    from transformers import (
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
        AutoModelForSequenceClassification,
    )

    config = copy.deepcopy(encoder.config)
    if type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        encoder.save_pretrained(folder)
        return
    if not isinstance(head, Classifier):
        config.num_labels = 1
    with torch.device("meta"):
        whole = AutoModelForSequenceClassification.from_config(config)
    prefix = f"{whole.base_model_prefix}."
    weights = {
        f"{prefix}{name}": tensor.cpu().contiguous()
        for name, tensor in encoder.state_dict().items()
    }
    if is_plain and (own := name_head_weights(head, pooling, config.model_type)):
        whole.load_state_dict(weights | own, assign=True)
        whole.save_pretrained(folder)
        return
    outside = [
        name
        for name, layer in whole.named_modules()
        if isinstance(layer, nn.Linear) and prefix not in name
    ]
    encoder.save_pretrained(folder, state_dict=weights | {f"{outside[-1]}.weight": torch.empty(0)})


def name_head_weights(head: nn.Module, pooling: str, family: str) -> dict[str, Tensor] | None:
    """Return a head's weights by their names in its family's `…ForSequenceClassification`.

    None if that class cannot compute what the head computes. A linear head on the first token is written as
    W h + b ≈ (W / c) tanh(c h) + b with c = `_SMALL_SCALE`.
    """
    layers = HEAD_LAYERS.get(family)
    if layers is None:
        return None
    if isinstance(head, Classifier):
        names = {"dense": layers.dense, "out": layers.out, "norm": layers.norm}
        parts = [(*name.partition("."), tensor) for name, tensor in head.state_dict().items()]
        return {f"{names[part]}.{name}": tensor.cpu() for part, _, name, tensor in parts}
    if not isinstance(head, nn.Linear) or pooling != "cls" or layers.activation != "tanh":
        return None
    size = head.in_features
    weight = head.weight.detach().cpu()
    bias = head.bias.detach().cpu()
    first = {
        f"{layers.dense}.weight": _SMALL_SCALE * torch.eye(size),
        f"{layers.dense}.bias": torch.zeros(size),
    }
    return first | {f"{layers.out}.weight": weight / _SMALL_SCALE, f"{layers.out}.bias": bias}


def run_reranker(job: Job[Params]) -> None:
    """Stage `reranker`: write the published cross-encoder of the input `encoder`, with its own head."""
    folder = job.inputs["encoder"].folder / "hf"
    check_reranker(folder)
    check_pairs(folder)
    encoder, head = Classifier.load(folder)
    model = CrossEncoder(encoder, "classifier", head)
    with writing(job) as draft:
        model.save(draft.folder / "cross", load_tokenizer(folder))
        write_json(draft.path("model.json"), {"objective": "cross", "parts": ["cross"], "steps": 0})


def read_cross(folder: Path) -> dict[str, Any]:
    """Read `cross.json` of a saved cross-encoder: its pooling, and the fields of `PairOptions`."""
    saved: dict[str, Any] = json.loads((folder / "cross.json").read_text(encoding="utf-8"))
    return PLAIN_PAIR.as_json() | saved


def read_cross_form(folder: Path) -> str | None:
    """Return the form of a saved cross-encoder, which is a key of its description; None for a plain one.

    Raises:
        UserError: no package here reads this form.
    """
    described = read_cross(folder).keys() - {"pooling", *PLAIN_PAIR.as_json()}
    form = min(described, default=None)
    if form is not None and form not in CROSS_FORMS:
        known = ", ".join(CROSS_FORMS) or "none"
        raise UserError(
            f"{folder / 'cross.json'}: {form} is set, which no package that is here reads; allowed: {known}"
        )
    return form


def load_cross(folder: Path) -> CrossEncoder:
    """Return the cross-encoder of a folder, of any form."""
    form = read_cross_form(folder)
    if form is None:
        return CrossEncoder.load(folder)
    model: CrossEncoder = load(CROSS_FORMS[form].load)(folder)
    return model
