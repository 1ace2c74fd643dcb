"""Vectors and scores of a batch, computed in micro-batches of a token budget."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tandem.models.cross import CrossEncoder
from tandem.models.device import place_array
from tandem.models.dual import DualEncoder
from tandem.models.encoding import SIDE_BY_SIDE
from tandem.models.ragged import Ids, Ragged, make_micro_batches
from tandem.models.tokens import Tokens
from tandem.store.job import load
from tandem.training.distributed import World
from tandem.training.lists import Batch

ScoreFunction = Callable[[Tensor, Tensor], Tensor]  # see `DualEncoder.scores`
# Lengths are padded to a multiple of it: in odd shapes the last bits of a forward pass depend on the number of threads.
MULTIPLE = 4


@dataclass(frozen=True)
class Seeds:
    """Seed torch's generator before every forward pass by its place in the training.

    A resumed training then needs no saved generator, and a micro-batch that is computed twice has the same dropout.

    Attributes:
        entropy: seed of the training, step, number of a part, number of a part within it, …; the same in all processes.
        process: rank of the process, so that processes draw different dropout.
    """

    entropy: tuple[int, ...]
    process: int = 0

    @property
    def step(self) -> int:
        """Number of steps done before this one: the second number of `entropy`."""
        return self.entropy[1]

    def child(self, number: int) -> "Seeds":
        """Return the seeds of a part."""
        return Seeds((*self.entropy, number), self.process)

    def set(self) -> None:
        """Seed torch."""
        sequence = np.random.SeedSequence(
            self.entropy, spawn_key=(self.process,) if self.process else ()
        )
        torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))


@dataclass(frozen=True)
class Budget:
    """Limit how much is computed at once; the loss and its gradient do not depend on it."""

    micro_tokens: int = 4096  # padded tokens of one forward pass
    graph_tokens: int = 65536  # tokens whose graph is kept for one backward pass, at most
    # compute micro-batches side by side on a CPU; nothing in them may be random
    side_by_side: bool = False


@dataclass(eq=False)
class Replayed:
    """Compute values of rows (vectors of texts, scores of pairs) in micro-batches, with gradient, in bounded memory.

    Up to `graph_tokens` tokens, the graph of all rows is kept, and the loss's own backward pass reaches the weights.
    If micro-batches are computed `side_by_side`, `backward` carries each one's gradient into the weights instead, also
    side by side. With more tokens, gradients are cached (GradCache, Gao et al. 2021): values are computed without a
    graph, the loss gives their gradient, and `backward` computes each micro-batch again, with the same dropout, to
    carry the gradient into the weights.

    Attributes:
        lengths: tokens of each row, special tokens included, shape (rows,).
        empty: values of no rows, shape (0, …).
        packed: tokens of a packed row; None where rows are padded.
    """

    compute: Callable[[Ids], Tensor]
    lengths: Ids
    empty: Tensor
    budget: Budget
    seeds: Seeds
    packed: int | None = None

    def __post_init__(self) -> None:
        self.parts = make_micro_batches(
            self.lengths, self.budget.micro_tokens, MULTIPLE, self.packed
        )
        self.fits = int(self.lengths.sum()) <= self.budget.graph_tokens
        self.is_parted = self.budget.side_by_side
        if self.is_parted:
            # The largest come first, so that no thread begins a large one when the others are done.
            self.parts.sort(key=lambda rows: -len(rows) * int(self.lengths[rows].max()))
        self.computed: list[Tensor] = []
        self.cached: Tensor | None = None

    def values(self) -> Tensor:
        """Return values in the order of the rows, shape (rows, …)."""
        learning = torch.is_grad_enabled()
        if not len(self.lengths):
            return self.empty.requires_grad_(learning)
        with torch.set_grad_enabled(learning and self.fits):
            computed = self._compute_parts()
            # Micro-batches have the rows in another order; places[i] is the position of row i in it.
            places = np.argsort(np.concatenate(self.parts))
            values = torch.cat(computed)[place_array(places)]
        if not learning or (self.fits and not self.is_parted):
            return values
        self.computed = computed if self.fits else []
        self.cached = values.detach().requires_grad_()
        return self.cached

    def backward(self) -> None:
        """Carry the gradient of cached values into the weights; without cached values, do nothing."""
        if self.cached is None or self.cached.grad is None:
            return
        gradients = [self.cached.grad[place_array(rows)] for rows in self.parts]
        if not self.is_parted:
            for number, gradient in enumerate(gradients):
                self._part(number).backward(gradient)
            return
        carry = load("extras.side_by_side:carry_gradients")
        carry(self.computed or self._part, gradients)

    def _compute_parts(self) -> list[Tensor]:
        """Return the values of each micro-batch; they are computed one after another if they draw random numbers."""
        numbers = range(len(self.parts))
        if self.is_parted:
            drawn = torch.get_rng_state()
            computed = list(load(SIDE_BY_SIDE)(self._part, numbers))
            if torch.equal(drawn, torch.get_rng_state()):
                return computed
            self.is_parted = False
        return [self._part(number) for number in numbers]

    def _part(self, number: int) -> Tensor:
        """Return values of one micro-batch, with its own dropout."""
        if not self.is_parted:
            self.seeds.child(number).set()
        return self.compute(self.parts[number])


def place_in_lists(scores: Tensor, batch: Batch) -> Tensor:
    """Arrange the scores of a batch's pairs as a table of its lists, with 0 in place of padding.

    Args:
        scores: in the order of `batch.mask`, shape (pairs,).
    Returns:
        Shape (queries, list).
    """
    lists, columns = place_array(np.argwhere(batch.mask)).unbind(1)
    return scores.new_zeros(batch.passages.shape).index_put((lists, columns), scores)


@dataclass(frozen=True)
class CrossScores:
    """s_ce(q, p) by a cross-encoder that reads some token ids."""

    model: CrossEncoder
    tokens: Tokens
    precision: str
    budget: Budget

    def score_lists(self, batch: Batch, seeds: Seeds) -> Replayed:
        """Compute the scores of the pairs of the batch's lists, in the order of `batch.mask`."""
        rows = batch.passages[batch.mask]
        queries = self.tokens.queries.take(np.repeat(batch.queries, batch.mask.sum(1)))
        return self.replay(queries, self.tokens.passages.take(rows), seeds)

    def replay(self, queries: Ragged, passages: Ragged, seeds: Seeds) -> Replayed:
        """Compute the scores of pairs: row i of the queries with row i of the passages."""
        template = self.tokens.template

        def compute(rows: Ids) -> Tensor:
            scores: Tensor = self.model(
                queries.take(rows), passages.take(rows), template, self.precision, MULTIPLE
            )
            return scores

        read = self.model.adapt(template)
        texts = passages.count_texts(np.arange(len(passages)))
        lengths = read.pair_lengths(np.diff(queries.offsets), np.diff(passages.offsets), texts)
        empty = next(self.model.parameters()).new_zeros(0)
        return Replayed(compute, lengths, empty, self.budget, seeds, self.model.packed)

    def split(self, batch: Batch) -> Iterator[Batch]:
        """Yield the batch in parts of consecutive lists, whose pairs have at most `graph_tokens` tokens in all.

        A part has at least one list, unless the batch has none: it is then yielded as one empty part.
        """
        # an arbitrary row in place of padding; the mask removes it again
        rows = np.maximum(batch.passages, 0)
        queries = self.tokens.queries.lengths(batch.queries)[:, None]
        passages = self.tokens.passages
        template = self.model.adapt(self.tokens.template)
        pairs = template.pair_lengths(queries, passages.lengths(rows), passages.count_texts(rows))
        sizes = np.where(batch.mask, pairs, 0).sum(1)
        yield from split_lists(batch, sizes, self.budget.graph_tokens)


def split_lists(batch: Batch, sizes: Ids, most: int) -> Iterator[Batch]:
    """Yield the batch in parts of consecutive lists that have at most `most` tokens in all, at least one list each.

    Args:
        sizes: tokens of each list, shape (queries,).
        most: tokens of a part; a single list may have more.
    """
    start = 0
    used = 0
    for i, size in enumerate(sizes):
        if i > start and used + size > most:
            yield batch.select(slice(start, i))
            start = i
            used = 0
        used += int(size)
    yield batch.select(slice(start, None))


@dataclass(frozen=True)
class TextVectors:
    """E(q) and E(p) by a dual encoder that reads some token ids."""

    model: DualEncoder
    tokens: Tokens
    precision: str
    budget: Budget

    def encode_side(self, side: str, rows: Ids, seeds: Seeds) -> Replayed:
        """Encode texts of a side, `query` or `passage`, by its tower; all vectors have the shape `model.shape`."""
        stored = self.tokens.queries if side == "query" else self.tokens.passages
        template = self.tokens.template
        special = template.extra[0]
        texts = stored.take(rows)
        shape = self.model.shape(side, stored.longest + special)

        def compute(part: Ids) -> Tensor:
            """Return the vectors of some of the texts, padded to the shape that all have in common."""
            vectors = self.model.encode(side, texts.take(part), template, self.precision, MULTIPLE)
            if vectors.shape[1:] == shape:
                return vectors
            # Only dimension 1, of tokens, is padded. torch takes two numbers per dimension, the last dimension first.
            paddings = (0, 0) * (vectors.dim() - 2) + (0, shape[0] - vectors.shape[1])
            return nn.functional.pad(vectors, paddings)

        empty = next(self.model.parameters()).new_zeros(0, *shape)
        return Replayed(
            compute, np.diff(texts.offsets) + special, empty, self.budget, seeds, self.model.packed
        )

    def encode_batch(self, batch: Batch, seeds: Seeds) -> tuple[Replayed, Replayed]:
        """Encode the batch's queries, and the passages of its lists in the order of `batch.mask`."""
        queries = self.encode_side("query", batch.queries, seeds.child(0))
        passages = self.encode_side("passage", batch.passages[batch.mask], seeds.child(1))
        return queries, passages

    def score_pool(self, queries: Ids, pool: Ids, world: World) -> Tensor:
        """Return s_de(q, p) of this process' queries with every passage of a pool, shape (queries, pool).

        Each process encodes a share of the pool.
        """
        seeds = Seeds((0,))
        share = self.encode_side("passage", pool[world.slice(len(pool))], seeds)
        passages = world.gather(share.values())
        return self.model.scores(self.encode_side("query", queries, seeds).values(), passages)


def score_own_lists(
    score: ScoreFunction, queries: Tensor, passages: Tensor, batch: Batch
) -> Tensor:
    """Return s_de(q, p) of each query with the passages of its own list, from the vectors of `encode_batch`.

    Shape (queries, list). A score in place of padding has no meaning: it is that of the first passage.
    """
    rows = np.zeros(batch.passages.shape, np.int64)
    rows[batch.mask] = np.arange(int(batch.mask.sum()))
    return score(queries, passages[place_array(rows)])
