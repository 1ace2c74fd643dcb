"""Objectives of pre-training on passages only: base classes, masked language modelling, crops, RetroMAE, coCondenser.

The other modules of the package contain one objective each.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.training import DualTrain
from tandem.contrib.pretraining.layers import Block, LanguageHead
from tandem.contrib.pretraining.masking import (
    Vocabulary,
    align_labels,
    crop,
    delete_tokens,
    make_generator,
)
from tandem.contrib.pretraining.options import (
    CoCondenserTrain,
    CondenserTrain,
    CropTrain,
    Masking,
    Predicting,
    RetroMaeTrain,
    Spans,
)
from tandem.errors import UserError
from tandem.models.device import place_all, precision
from tandem.models.dual import DualEncoder, dot_scores
from tandem.models.encoding import pool_states
from tandem.models.ragged import Ids, Ragged, split_by_tokens
from tandem.models.tokens import Template, Tokens
from tandem.training.distributed import World
from tandem.training.forward import MULTIPLE, Budget, Replayed, Seeds
from tandem.training.lists import Batch, Positives
from tandem.training.objectives import add_to_totals, apply_gradient
from tandem.training.objectives.dual import BatchDualObjective

T = TypeVar("T", bound=Predicting)
M = TypeVar("M", bound=Masking)
R = TypeVar("R", bound=RetroMaeTrain)


class Contrast(ABC):
    """The dual encoder's loss on two texts derived from each passage, one as the query, the other as the passage.

    Both towers of `model` are the encoder; no vocabulary is needed.
    """

    hides_tokens: ClassVar[bool] = False
    predicts_tokens: ClassVar[bool] = False

    def __init__(
        self,
        model: DualEncoder,
        tokens: Tokens,
        train: Spans,
        vocabulary: None,
        budget: Budget,
        world: World,
    ) -> None:
        self.models = nn.ModuleDict({"dual": model})
        self.model, self.tokens, self.train, self.budget, self.world = (
            model,
            tokens,
            train,
            budget,
            world,
        )
        self.contrast = DualTrain(loss="listwise", in_batch=True, precision=train.precision)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. A passage that occurs in the batch twice is not a negative of itself."""
        texts, places = self.tokens.passages.take(batch.queries), np.arange(len(batch.queries))
        first, second = self.pair(texts, seeds)
        same = Positives(*np.argwhere(batch.queries[:, None] == batch.queries).T)
        pairs = Tokens(second, first, self.tokens.template)
        objective = BatchDualObjective(
            self.model, pairs, self.contrast, same, self.budget, self.world
        )
        return objective.backward(Batch(places, places[:, None]), seeds)

    @abstractmethod
    def pair(self, texts: Ragged, seeds: Seeds) -> tuple[Ragged, Ragged]:
        """Return the queries and the passages that are derived from each text."""


class Crop(Contrast):
    """-log( e^{s(a_i, b_i)} / Σ_j e^{s(a_i, b_j)} ), where a_i and b_i are two random spans of passage i.

    Contriever's contrastive loss (Izacard et al. 2022 Eq. 1) with its independent cropping. The negatives are the
    batch's other passages, of all processes, instead of a queue of earlier ones. Each token of a span is deleted with
    `deletion_probability`, the paper's other augmentation.
    """

    train: CropTrain

    def pair(self, texts: Ragged, seeds: Seeds) -> tuple[Ragged, Ragged]:
        """Return two spans of each text."""
        first, second = (self._span(texts, make_generator(seeds, side)) for side in (0, 1))
        return first, second

    def _span(self, texts: Ragged, draw: np.random.Generator) -> Ragged:
        span = crop(texts, self.train, draw)
        share = self.train.deletion_probability
        return delete_tokens(span, share, draw) if share else span


class Pretraining(ABC, Generic[T]):
    """Train an encoder, both towers of `model`, by a head that predicts tokens; `vocabulary` hides tokens."""

    hides_tokens: ClassVar[bool] = True
    predicts_tokens: ClassVar[bool] = True

    def __init__(
        self,
        model: DualEncoder,
        tokens: Tokens,
        train: T,
        vocabulary: Any,
        budget: Budget,
        world: World,
    ) -> None:
        self.model, self.tokens, self.budget, self.world = model, tokens, budget, world
        self.vocabulary: Vocabulary = vocabulary  # None if the objective hides no tokens
        self.train: T = train
        self.encoder: Any = model.towers["passage"]
        self.head = LanguageHead(self.encoder)
        self.models = nn.ModuleDict({"dual": model, "head": self.head, **self.further()})

    def further(self) -> dict[str, nn.Module]:
        """Return further modules by name, which are trained and then dropped."""
        return {}

    @abstractmethod
    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`."""

    def inputs(self, texts: Ragged) -> dict[str, Tensor]:
        """Return padded inputs on the device."""
        return place_all(self.tokens.template.single_inputs(texts).to_tensors(MULTIPLE))

    def align(self, labels: Ragged, hidden: Tensor) -> Tensor:
        """Return labels at the positions of the tokens in `hidden`, shape (passages, length); `IGNORED` elsewhere."""
        at = align_labels(labels, len(self.tokens.template.single[0]), hidden.shape[1])
        return torch.from_numpy(at).to(hidden.device)

    def predict(self, hidden: Tensor, labels: Ragged) -> Tensor:
        """Return the head's loss of each passage, shape (passages,)."""
        loss: Tensor = self.head(
            hidden, self.align(labels, hidden), self.encoder.get_input_embeddings().weight
        )
        return loss

    def vector(self, hidden: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """Return the vector of each passage as the encoder pools it, shape (passages, 1, dim)."""
        return pool_states(hidden, inputs["attention_mask"], self.model.pooling)[:, None].to(
            hidden.dtype
        )

    def embedder(self, objective: str) -> Any:
        """Return the encoder's embedding layer, positions included, for a decoder of the objective.

        Raises:
            UserError: the encoder has no position embeddings, or its embeddings are not as wide as its states.
        """
        embeddings = getattr(self.encoder, "embeddings", None)
        if getattr(embeddings, "position_embeddings", None) is None:
            kind = self.encoder.config.model_type
            raise UserError(
                f"objective {objective} needs an encoder with position embeddings, and {kind} has none"
            )
        width = self.encoder.config.hidden_size
        words = self.encoder.get_input_embeddings().embedding_dim
        if width != words:
            problem = f"states have {width} dimensions and embeddings {words}"
            raise UserError(
                f"objective {objective} needs an encoder whose embeddings are as wide as its states; {problem}"
            )
        return embeddings


class Separable(Pretraining[T]):
    """An objective whose loss is a sum over passages: micro-batches compute it exactly."""

    names: tuple[str, ...]  # of the reported values: the loss and, if it has several terms, these

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`."""
        texts, count = self.tokens.passages.take(batch.queries), len(batch.queries)
        drawn = self.draw(texts, seeds)
        own = np.arange(count)[self.world.slice(count)]
        totals = dict.fromkeys(self.names, 0.0)
        lengths = texts.lengths(own) + self.tokens.template.extra[0]
        for number, rows in enumerate(split_by_tokens(lengths, self.budget.micro_tokens)):
            seeds.child(number).set()
            places = own[rows]
            with precision(self.train.precision):
                terms = self.terms(
                    texts.take(places), [part.take(places) for part in drawn], places, seeds
                )
            add_to_totals(totals, apply_gradient(terms, count))
        return totals

    @abstractmethod
    def draw(self, texts: Ragged, seeds: Seeds) -> tuple[Ragged, ...]:
        """Return the random inputs and labels drawn from the whole batch's texts, each with one row per text."""

    @abstractmethod
    def terms(
        self, texts: Ragged, drawn: list[Ragged], places: Ids, seeds: Seeds
    ) -> dict[str, Tensor]:
        """Return the loss's terms by name, each a sum over some passages, whose positions in the batch are `places`."""


class Masked(Separable[M]):
    """Hide a share of each passage's tokens, for objectives that predict them."""

    def draw(self, texts: Ragged, seeds: Seeds) -> tuple[Ragged, ...]:
        """Return the encoder's input and the labels."""
        return self.vocabulary.hide(texts, self.train.mask_probability, make_generator(seeds))


class Mlm(Masked[Masking]):
    """-log p(x_i | the passage with `mask_probability` of its tokens hidden), averaged over the hidden tokens.

    BERT's objective (Devlin et al. 2019 §3.1) without next-sentence prediction.
    """

    names = ("loss",)

    def terms(
        self, texts: Ragged, drawn: list[Ragged], places: Ids, seeds: Seeds
    ) -> dict[str, Tensor]:
        """See `Separable`."""
        seen, labels = drawn
        hidden = self.encoder(**self.inputs(seen)).last_hidden_state
        return {"mlm": self.predict(hidden, labels).sum()}


def views(
    lengths: Ids, width: int, template: Template, share: float, draws: list[np.random.Generator]
) -> Ids:
    """Draw which positions each position may attend to: the mask of RetroMAE's enhanced decoding (Eq. 7).

    A token sees the passage's vector, which comes first, the special tokens, and a random share `1 - share` of the
    other tokens, drawn separately for each token. It never sees itself.

    Args:
        lengths: tokens of each passage, shape (passages,).
        share: the share of the other tokens that is hidden on average.
    Returns:
        Shape (passages, width, width): whether a position (second axis) sees another (third).
    """
    before, after = map(len, template.single)
    visible = np.zeros((len(lengths), width, width), bool)
    for seen, length, draw in zip(visible, lengths, draws, strict=True):
        end = before + length
        seen[:, :before] = seen[:, end : end + after] = True
        others = draw.random((length, length)) >= share
        np.fill_diagonal(others, False)
        seen[before:end, before:end] = others
    return visible


class EnhancedDecoding(Masked[R]):
    """RetroMAE's two losses; a subclass may add to them."""

    name: str

    def further(self) -> dict[str, nn.Module]:
        """Return the decoder."""
        self.embeddings = self.embedder(self.name)
        self.decoder = Block(self.encoder.config)
        return {"decoder": self.decoder}

    def terms(
        self, texts: Ragged, drawn: list[Ragged], places: Ids, seeds: Seeds
    ) -> dict[str, Tensor]:
        """See `Separable`."""
        seen, labels = drawn
        inputs = self.inputs(seen)
        hidden = self.encoder(**inputs).last_hidden_state
        vector = self.vector(hidden, inputs)
        width, lengths = hidden.shape[1], np.diff(texts.offsets)
        draws = [make_generator(seeds, 1, place) for place in places]
        share = self.train.decoder_mask_probability
        visible = torch.from_numpy(views(lengths, width, self.tokens.template, share, draws)).to(
            hidden.device
        )
        tokens = self.embeddings(self.inputs(texts)["input_ids"])
        table = self.embeddings.position_embeddings
        # the RoBERTa family counts positions from padding_idx + 1
        first = 0 if table.padding_idx is None else table.padding_idx + 1
        positions = table.weight[first : first + width]
        decoded = self.decoder(vector + positions, torch.cat([vector, tokens[:, 1:]], 1), visible)
        terms = {
            "mlm": self.predict(hidden, labels).sum(),
            "decoder": self.predict(decoded, texts).sum(),
        }
        return terms | self.further_terms(hidden, texts)

    def further_terms(self, hidden: Tensor, texts: Ragged) -> dict[str, Tensor]:
        """Return terms in addition to RetroMAE's, from the encoder's states of some passages."""
        return {}


class RetroMae(EnhancedDecoding[RetroMaeTrain]):
    """L = L_mlm + L_dec (Xiao et al. 2022), with enhanced decoding.

    L_mlm: the encoder's own hidden tokens (`mask_probability`, 30 % in the paper's code). L_dec (Eq. 8): every token of
    the passage, predicted by one transformer layer A = softmax(Q Kᵀ / √d + M) V with queries from
    H1 = [h + p_0, …, h + p_N] and keys and values from H2 = [h, e_1 + p_1, …, e_N + p_N] (Eqs. 4 to 7). Here h is the
    passage's vector, e are embeddings and p positions; M hides `decoder_mask_probability` of the tokens from each
    position. As in the paper's code, e + p is the output of the encoder's embedding layer, and both losses use one
    head. Each loss is averaged over its tokens.
    """

    name, names = "retromae", ("loss", "mlm", "decoder")


def span_contrast(scores: Tensor, places: Tensor, passages: Tensor) -> Tensor:
    """-log( e^{⟨h, h'⟩} / Σ_{k≠h} e^{⟨h, h_k⟩} ), where h' is the other span of h's passage.

    coCondenser's loss (Gao & Callan 2022 §3.2): every other span of the batch is a negative. A passage that occurs in
    the batch twice is not a negative of itself.

    Args:
        scores: ⟨h, h_k⟩ of some spans (rows) with all spans of the batch, shape (spans, all spans); spans 2i and 2i + 1
            are cut from the batch's passage i.
        places: the rows' positions among all spans, shape (spans,).
        passages: the passage from which each of all spans is cut, shape (all spans,).
    Returns:
        Shape (spans,), in nats.
    """
    partner = places ^ 1
    same = passages[places][:, None] == passages[None, :]
    same.scatter_(1, partner[:, None], False)
    return nn.functional.cross_entropy(
        scores.masked_fill(same, float("-inf")), partner, reduction="none"
    )


class CondenserHead(nn.ModuleList):
    """Condenser's head: `head_layers` transformer layers over [h_late; early tokens] (Gao & Callan 2021).

    Raises:
        UserError: the early states are not from a layer before the last.
    """

    def __init__(self, encoder: Any, train: CondenserTrain | CoCondenserTrain) -> None:
        layers = encoder.config.num_hidden_layers
        early_layer = layers // 2 if train.skip_from is None else train.skip_from
        if early_layer >= layers:
            problem = f"train.skip_from is {early_layer}, but the encoder has {layers} layers"
            raise UserError(f"{problem}; name an earlier one")
        super().__init__(Block(encoder.config) for _ in range(train.head_layers))
        self.early = early_layer

    def forward(self, vectors: Tensor, states: tuple[Tensor, ...], visible: Tensor) -> Tensor:
        """Return the states from which tokens are predicted, shape (passages, length, dim).

        Args:
            vectors: of each passage, shape (passages, dim).
            states: the encoder's after each layer, its embeddings first.
            visible: positions that are not padding, shape (passages, 1, length).
        """
        early = states[self.early]
        hidden = torch.cat([vectors[:, None].to(early.dtype), early[:, 1:]], 1)
        for block in self:
            hidden = block(hidden, hidden, visible)
        return hidden


class CoCondenser(Pretraining[CoCondenserTrain]):
    """L = L_mlm + L_head + L_co (Gao & Callan 2022), averaged over both spans of each passage.

    Two random spans are cut out of each passage, and `mask_probability` of their tokens is hidden. L_head is
    Condenser's (Gao & Callan 2021): the hidden tokens, predicted by `head_layers` transformer layers over
    [h_late; early tokens], the span's late vector and the token states after layer `skip_from` (None: half of the
    layers). L_mlm: the same tokens, predicted from the late token states. L_mlm and L_head are averaged over a span's
    hidden tokens. L_co is `span_contrast` of the late vectors among all spans of the batch.
    """

    def further(self) -> dict[str, nn.Module]:
        """Return Condenser's head."""
        self.condenser = CondenserHead(self.encoder, self.train)
        return {"condenser": self.condenser}

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. The contrast needs the vectors of all spans in one loss; `Replayed` computes it in parts."""
        passages = np.repeat(batch.queries, 2)
        spans = crop(self.tokens.passages.take(passages), self.train, make_generator(seeds, 0))
        seen, labels = self.vocabulary.hide(
            spans, self.train.mask_probability, make_generator(seeds, 1)
        )
        mine = self.world.slice(len(batch.queries))
        own = np.arange(2 * mine.start, 2 * mine.stop)

        def compute(rows: Ids) -> Tensor:
            return self.encoded(seen.take(own[rows]), labels.take(own[rows]))

        empty = self.head.bias.new_zeros(0, self.model.dimension + 2)
        lengths = spans.lengths(own) + self.tokens.template.extra[0]
        computed = Replayed(compute, lengths, empty, self.budget, seeds)
        vectors, mlm, head = computed.values().split([self.model.dimension, 1, 1], 1)
        scores = dot_scores(vectors, self.world.gather(vectors), self.model.temperature)
        places, cut = (torch.from_numpy(array).to(scores.device) for array in (own, passages))
        contrast = span_contrast(scores, places, cut)
        terms = {"mlm": mlm.sum(), "head": head.sum(), "contrast": contrast.sum()}
        values = apply_gradient(terms, len(passages))
        computed.backward()
        return values

    def encoded(self, seen: Ragged, labels: Ragged) -> Tensor:
        """Return each span's vector, its L_mlm and its L_head, shape (spans, dim + 2)."""
        inputs = self.inputs(seen)
        visible = inputs["attention_mask"][:, None].bool()
        with precision(self.train.precision):
            states = self.encoder(**inputs, output_hidden_states=True)
            late = states.last_hidden_state
            vectors = pool_states(late, inputs["attention_mask"], self.model.pooling)
            hidden = self.condenser(vectors, states.hidden_states, visible)
            losses = [self.predict(late, labels), self.predict(hidden, labels)]
        if self.model.normalize:
            vectors = nn.functional.normalize(vectors, dim=-1)
        return torch.cat([vectors, torch.stack(losses, 1)], 1)
