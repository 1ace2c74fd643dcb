"""Contriever's queue of negatives (Izacard et al. 2022), with momentum contrast (He et al. 2020)."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from tandem.contrib.pretraining.objectives import Crop
from tandem.contrib.pretraining.options import MocoTrain
from tandem.models.device import place_array
from tandem.models.dual import DualEncoder
from tandem.models.ragged import Ids, Ragged, make_micro_batches
from tandem.models.tokens import Tokens
from tandem.training.distributed import World
from tandem.training.forward import MULTIPLE, Budget, Seeds
from tandem.training.lists import Batch
from tandem.training.objectives import add_to_totals, apply_gradient

_NO_PASSAGE = -1


class Queue(nn.Module):
    """The vectors of the most recent passages, and the weights of the encoder that computed them.

    All attributes are buffers, so that checkpoints contain them as well as the weights that learn.

    Attributes:
        vectors: shape (queue, dim); at first, random vectors of length 1, as in Contriever's release.
        passages: the passage of each vector, shape (queue,); -1 for a random one.
        weights: the key encoder's weights end to end, shape (weights,).
        pushed: how many vectors have been added so far.
    """

    vectors: Tensor
    passages: Tensor
    weights: Tensor
    pushed: Tensor

    def __init__(self, model: DualEncoder, train: MocoTrain) -> None:
        super().__init__()
        self.momentum = train.momentum
        # a plan always sets train.seed
        generator = torch.Generator().manual_seed(train.seed or 0)
        start = torch.randn(train.queue, model.dimension, generator=generator)
        self.register_buffer("vectors", nn.functional.normalize(start, dim=1))
        self.register_buffer("passages", torch.full((train.queue,), _NO_PASSAGE))
        self.register_buffer("weights", join_weights(model))
        self.register_buffer("pushed", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def follow(self, model: DualEncoder) -> None:
        """Move the key encoder's weights towards the encoder's: θ_k ← m θ_k + (1 - m) θ_q; at first, copy them."""
        current = join_weights(model)
        if self.pushed == 0:
            self.weights = current
        else:
            self.weights.lerp_(current, 1 - self.momentum)

    @torch.no_grad()
    def push(self, vectors: Tensor, passages: Tensor) -> None:
        """Replace the oldest vectors by a batch's; of a batch larger than the queue, only the last ones are kept."""
        size = len(self.vectors)
        vectors, passages = vectors[-size:], passages[-size:]
        # A step fills the places after those of the step before; the first place follows the last.
        places = (int(self.pushed) + torch.arange(len(vectors), device=vectors.device)) % size
        self.vectors[places] = vectors.to(self.vectors)
        self.passages[places] = passages
        self.pushed += len(vectors)


class Moco(Crop):
    """-log( e^{s(a_i, b_i)} / (e^{s(a_i, b_i)} + Σ_k e^{s(a_i, b_k)}) ), where b_k are the spans of a queue.

    Contriever's contrastive loss (Izacard et al. 2022 Eq. 1) with its queue and momentum contrast (He et al. 2020 §3).
    The spans b go through a key encoder, whose weights slowly follow the trained encoder's and get no gradient. Its
    vectors of earlier steps, of all processes, are the negatives. A passage is not a negative of itself, unlike in
    Contriever's release: in a collection smaller than the queue, that would happen again and again.
    """

    train: MocoTrain

    def __init__(
        self,
        model: DualEncoder,
        tokens: Tokens,
        train: MocoTrain,
        vocabulary: None,
        budget: Budget,
        world: World,
    ) -> None:
        super().__init__(model, tokens, train, vocabulary, budget, world)
        self.queue = Queue(model, train)
        self.models["queue"] = self.queue

    def backward(self, batch: Batch, seeds: Seeds) -> dict[str, float]:
        """See `Objective`. Given the queue, the loss is a sum over passages, which micro-batches compute exactly."""
        count = len(batch.queries)
        own = np.arange(count)[self.world.slice(count)]
        queries, passages = self.pair(self.tokens.passages.take(batch.queries), seeds)
        rows = place_array(batch.queries)

        self.queue.follow(self.model)
        with torch.no_grad(), self._key_weights():
            keys = self.world.gather(self._encode_keys(passages.take(own), seeds.child(0)))

        totals: dict[str, float] = {"loss": 0.0}
        for number, part in enumerate(self._split(queries.take(own))):
            places = own[part]
            seeds.child(1).child(number).set()
            vectors = self._encode("query", queries.take(places))
            at = place_array(places)
            losses = self._contrast(vectors, keys[at], rows[at])
            add_to_totals(totals, apply_gradient({"contrast": losses.sum()}, count))
        self.queue.push(keys, rows)
        return totals

    def _contrast(self, vectors: Tensor, keys: Tensor, rows: Tensor) -> Tensor:
        """Return the loss of some passages, shape (passages,), from both spans' vectors, shape (passages, dim)."""
        temperature = self.model.temperature
        positives = (vectors * keys).sum(1, keepdim=True) / temperature
        negatives = vectors @ self.queue.vectors.to(vectors).T / temperature
        is_own = rows[:, None] == self.queue.passages
        scores = torch.cat([positives, negatives.masked_fill(is_own, -torch.inf)], 1)
        # the positive comes first
        return nn.functional.cross_entropy(
            scores, torch.zeros_like(rows, dtype=torch.int64), reduction="none"
        )

    def _encode_keys(self, texts: Ragged, seeds: Seeds) -> Tensor:
        """Return the key encoder's vector of each text, shape (texts, dim)."""
        vectors = next(self.model.parameters()).new_zeros(len(texts), self.model.dimension)
        for number, part in enumerate(self._split(texts)):
            seeds.child(number).set()
            vectors[place_array(part)] = self._encode("passage", texts.take(part)).to(vectors)
        return vectors

    def _encode(self, side: str, texts: Ragged) -> Tensor:
        """Return the encoder's vector of each text of a micro-batch, shape (texts, dim)."""
        template, mode = self.tokens.template, self.train.precision
        return self.model.encode(side, texts, template, mode, MULTIPLE)

    def _split(self, texts: Ragged) -> list[Ids]:
        """Return the rows of each micro-batch of texts; an empty list if there are no texts."""
        lengths = np.diff(texts.offsets) + self.tokens.template.extra[0]
        return make_micro_batches(lengths, self.budget.micro_tokens, MULTIPLE, self.model.packed)

    @contextmanager
    def _key_weights(self) -> Iterator[None]:
        """Give the encoder the key encoder's weights within the context."""
        own = join_weights(self.model)
        put_weights(self.model, self.queue.weights)
        try:
            yield
        finally:
            put_weights(self.model, own)


def join_weights(model: nn.Module) -> Tensor:
    """Return a copy of a model's weights, end to end, shape (weights,)."""
    return nn.utils.parameters_to_vector(model.parameters()).detach()


@torch.no_grad()
def put_weights(model: nn.Module, weights: Tensor) -> None:
    """Copy the weights that `join_weights` returned into a model.

    `vector_to_parameters` is unsuitable: parameters would share the vector's memory, and their version counters, from
    which oneDNN's cached layouts know that they have changed, would stay the same.
    """
    start = 0
    for weight in model.parameters():
        stop = start + weight.numel()
        weight.copy_(weights[start:stop].view_as(weight))
        start = stop
