"""Objectives of pre-training over passages alone: masked language modelling and random crops."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.encoders import CoCondenserTrain, Masking, RetroMaeTrain, Spans
from tandem.config.training import DualTrain
from tandem.extras.pretraining.masking import LanguageHead, Vocabulary, aligned, crop, generator
from tandem.models.device import device, precision
from tandem.models.dual import DualEncoder
from tandem.models.ragged import Ids, Ragged, token_batches
from tandem.models.tokens import Tokens
from tandem.training.distributed import ALONE, World
from tandem.training.forward import MULTIPLE, Budget, Seeds
from tandem.training.lists import Batch, Positives
from tandem.training.objectives import add, backward
from tandem.training.objectives.dual import Dual

T = TypeVar("T", Masking, RetroMaeTrain, CoCondenserTrain)


class Crop:
    """-log( e^{s(a_i, b_i)} / Σ_j e^{s(a_i, b_j)} ), a_i and b_i being two random spans of passage i.

    Contriever's contrastive loss (Izacard et al. 2022 Eq. 1) with its independent cropping, the negatives being the
    batch's other passages instead of a queue of earlier ones. It is the dual encoder's loss with one span as query and
    the other as passage; so in-batch negatives come from all processes.
    The encoder is both towers of `model`.
    """

    def __init__(self, model: DualEncoder, tokens: Tokens, train: Spans, budget: Budget, world: World = ALONE) -> None:
        self.models = nn.ModuleDict({"dual": model})
        self.model, self.tokens, self.train, self.budget, self.world = model, tokens, train, budget, world
        self.contrast = DualTrain(loss="listwise", in_batch=True, precision=train.precision)

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. A passage that stands in the batch twice is no negative of itself."""
        texts, places = self.tokens.passages.take(batch.queries), np.arange(len(batch.queries))
        shares = self.train.crop_shortest, self.train.crop_longest
        first, second = (crop(texts, *shares, generator(seeds, side)) for side in (0, 1))
        same = Positives(*np.nonzero(batch.queries[:, None] == batch.queries[None, :]))
        spans = Tokens(second, first, self.tokens.template)
        objective = Dual(self.model, spans, self.contrast, same, self.budget, self.world)
        return objective.backward(Batch(places, places[:, None]), seeds)

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """See `Objective`: no lists are ranked."""
        return {}


class Pretraining(ABC, Generic[T]):
    """An encoder, both towers of `model`, with a head that predicts hidden tokens; `vocabulary` says which may be."""

    def __init__(
        self,
        model: DualEncoder,
        tokens: Tokens,
        train: T,
        vocabulary: Vocabulary,
        budget: Budget,
        world: World = ALONE,
    ) -> None:
        self.model, self.tokens, self.vocabulary = model, tokens, vocabulary
        self.train: T = train
        self.budget, self.world = budget, world
        self.encoder: Any = model.towers["passage"]
        self.head = LanguageHead(self.encoder)
        self.models = nn.ModuleDict({"dual": model, "head": self.head, **self.further()})

    def further(self) -> dict[str, nn.Module]:
        """What else is trained and dropped afterwards, by name."""
        return {}

    @abstractmethod
    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`."""

    def inputs(self, texts: Ragged) -> dict[str, Tensor]:
        """Padded inputs on the device."""
        return {name: tensor.to(device()) for name, tensor in self.tokens.template.singles(texts, MULTIPLE).items()}

    def predict(self, hidden: Tensor, labels: Ragged) -> Tensor:
        """The head's loss of each passage, shape (passages,)."""
        at = aligned(labels, len(self.tokens.template.single[0]), hidden.shape[1])
        loss: Tensor = self.head(
            hidden, torch.from_numpy(at).to(hidden.device), self.encoder.get_input_embeddings().weight
        )
        return loss

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """See `Objective`: no lists are ranked."""
        return {}


@dataclass(frozen=True)
class Part:
    """Some passages of a batch.

    Attributes:
        texts: their tokens.
        seen: the same with some hidden.
        labels: the hidden ones.
        places: where the passages stand in the whole batch, shape (passages,).
        seeds: the step's.
    """

    texts: Ragged
    seen: Ragged
    labels: Ragged
    places: Ids
    seeds: Seeds


class Separable(Pretraining[T]):
    """An objective whose loss falls apart per passage: passages are computed a few at a time, exactly.

    Attributes:
        names: the terms of its loss.
    """

    names: tuple[str, ...]

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`."""
        texts, count = self.tokens.passages.take(batch.queries), len(batch.queries)
        seen, labels = self.vocabulary.hide(texts, self.train.mask_probability, generator(seeds))
        own = np.arange(count)[self.world.slice(count)]
        totals = dict.fromkeys(("loss", *self.names) if len(self.names) > 1 else ("loss",), 0.0)
        lengths = texts.lengths(own) + self.tokens.template.extra[0]
        for number, rows in enumerate(token_batches(lengths, self.budget.micro_tokens)):
            seeds.child(number).set()
            at = own[rows]
            part = Part(texts.take(at), seen.take(at), labels.take(at), at, seeds)
            with precision(self.train.precision):
                terms = self.terms(part)
            add(totals, backward(terms, count))
        return totals

    @abstractmethod
    def terms(self, part: Part) -> dict[str, Tensor]:
        """The loss's terms by name, each a sum over the passages."""


class Mlm(Separable[Masking]):
    """-log p(x_i | the passage with `mask_probability` of its tokens hidden), averaged over the hidden tokens.

    BERT's objective (Devlin et al. 2019 §3.1) without next-sentence prediction.
    """

    names = ("mlm",)

    def terms(self, part: Part) -> dict[str, Tensor]:
        """See `Separable`."""
        hidden = self.encoder(**self.inputs(part.seen)).last_hidden_state
        return {"mlm": self.predict(hidden, part.labels).sum()}
