"""Vectors and scores of a batch, computed in micro-batches of a token budget."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tandem.models.cross import CrossEncoder
from tandem.models.device import place_array
from tandem.models.dual import DualEncoder
from tandem.models.ragged import Ids, Ragged, make_micro_batches
from tandem.models.tokens import Tokens
from tandem.training.distributed import World
from tandem.training.lists import Batch

ScoreFunction = Callable[[Tensor, Tensor], Tensor]  # see `DualEncoder.scores`
# lengths are padded to one: in odd shapes the last bits of a forward pass depend on the threads
MULTIPLE = 4


@dataclass(frozen=True)
class Seeds:
    """Torch's generator, set anew before every forward pass from where it stands in the training.

    Dropout then needs no saved state to resume, and a micro-batch computed twice meets the same masks.

    Attributes:
        entropy: seed of the training, step, parts …: the same in all processes.
        process: sets the processes' generators apart.
    """

    entropy: tuple[int, ...]
    process: int = 0

    @property
    def step(self) -> int:
        """Steps done before: the second number of a training's (seed, step, parts …)."""
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
    """Say how much is computed at once: never changes the mathematics."""

    micro_tokens: int = 4096  # padded tokens of one forward pass
    graph_tokens: int = 65536  # tokens whose graph is kept at most for one backward pass


@dataclass(eq=False)
class Replayed:
    """Compute values of rows (vectors of texts, scores of pairs) in micro-batches, with gradient, in bounded memory.

    Up to `graph_tokens` tokens one backward pass goes through everything. Above, gradients are cached (GradCache, Gao
    et al. 2021): values are computed without a graph, the loss gives their gradient, and `backward` computes each
    micro-batch again, with the same dropout, to carry the gradient into the weights.

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
        self.cached: Tensor | None = None

    def values(self) -> Tensor:
        """Return values in the order of the rows, shape (rows, …)."""
        learning = torch.is_grad_enabled()
        if not len(self.lengths):
            return self.empty.requires_grad_(learning)
        with torch.set_grad_enabled(learning and self.fits):
            values = torch.cat([self._part(number) for number in range(len(self.parts))])
            # of each row among those of the micro-batches
            places = np.argsort(np.concatenate(self.parts))
            values = values[place_array(places)]
        if self.fits or not learning:
            return values
        self.cached = values.detach().requires_grad_()
        return self.cached

    def backward(self) -> None:
        """Carry the cached values' gradient into the weights; nothing to do where the graph still exists."""
        if self.cached is None or self.cached.grad is None:
            return
        for number, rows in enumerate(self.parts):
            self._part(number).backward(self.cached.grad[place_array(rows)])

    def _part(self, number: int) -> Tensor:
        """Return values of one micro-batch, with its own dropout."""
        self.seeds.child(number).set()
        return self.compute(self.parts[number])


def on_lists(scores: Tensor, batch: Batch) -> Tensor:
    """Lay scores in the order of `batch.mask` out as lists, shape (queries, list); 0 where no passage stands."""
    lists, columns = place_array(np.argwhere(batch.mask)).unbind(1)
    return scores.new_zeros(batch.passages.shape).index_put((lists, columns), scores)


@dataclass(frozen=True)
class CrossScores:
    """s_ce(q, p) by a cross-encoder that reads some token ids."""

    model: CrossEncoder
    tokens: Tokens
    precision: str
    budget: Budget

    def of(self, batch: Batch, seeds: Seeds) -> Replayed:
        """Compute the scores of the pairs of the batch's lists, in the order of `batch.mask`."""
        rows = batch.passages[batch.mask]
        queries = self.tokens.queries.take(np.repeat(batch.queries, batch.mask.sum(1)))
        return self.replay(queries, self.tokens.passages.take(rows), seeds)

    def replay(self, queries: Ragged, passages: Ragged, seeds: Seeds) -> Replayed:
        """Compute the scores of pairs, row by row."""
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
        """Yield consecutive lists of a batch whose pairs have at most `graph_tokens` together, at least one list each.

        A batch without lists is one part without lists.
        """
        rows = np.maximum(batch.passages, 0)
        queries = self.tokens.queries.lengths(batch.queries)[:, None]
        passages = self.tokens.passages
        template = self.model.adapt(self.tokens.template)
        pairs = template.pair_lengths(queries, passages.lengths(rows), passages.count_texts(rows))
        sizes = np.where(batch.mask, pairs, 0).sum(1)
        yield from split_lists(batch, sizes, self.budget.graph_tokens)


def split_lists(batch: Batch, sizes: Ids, most: int) -> Iterator[Batch]:
    """Yield consecutive lists of a batch of at most so many tokens together, at least one list each.

    Args:
        sizes: tokens of each list, shape (queries,).
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

    def of_side(self, side: str, rows: Ids, seeds: Seeds) -> Replayed:
        """Compute vectors of rows of a side, `query` or `passage`, by its tower, all of the shape `model.shape`."""
        stored = self.tokens.queries if side == "query" else self.tokens.passages
        template = self.tokens.template
        special = template.extra[0]
        texts = stored.take(rows)
        shape = self.model.shape(side, stored.longest + special)

        def compute(part: Ids) -> Tensor:
            """Return the vectors of some of the rows."""
            vectors = self.model.encode(side, texts.take(part), template, self.precision, MULTIPLE)
            if vectors.shape[1:] == shape:
                return vectors
            # Two paddings for each dimension, from the last one to the second, that of tokens: it alone grows.
            paddings = (0, 0) * (vectors.dim() - 2) + (0, shape[0] - vectors.shape[1])
            return nn.functional.pad(vectors, paddings)

        empty = next(self.model.parameters()).new_zeros(0, *shape)
        return Replayed(
            compute, np.diff(texts.offsets) + special, empty, self.budget, seeds, self.model.packed
        )

    def of_batch(self, batch: Batch, seeds: Seeds) -> tuple[Replayed, Replayed]:
        """Compute vectors of the batch's queries, and of its lists' passages in the order of `batch.mask`."""
        queries = self.of_side("query", batch.queries, seeds.child(0))
        passages = self.of_side("passage", batch.passages[batch.mask], seeds.child(1))
        return queries, passages

    def pool_scores(self, queries: Ids, pool: Ids, world: World) -> Tensor:
        """s_de(q, p), shape (queries, pool), of this process' queries; each process encodes a share of the pool."""
        seeds = Seeds((0,))
        share = self.of_side("passage", pool[world.slice(len(pool))], seeds)
        passages = world.gather(share.values())
        return self.model.scores(self.of_side("query", queries, seeds).values(), passages)


def list_scores(score: ScoreFunction, queries: Tensor, passages: Tensor, batch: Batch) -> Tensor:
    """s_de(q, p) of each query against its own list, from the vectors of `of_batch`, by a model's `scores`.

    Shape (queries, list); of no meaning where no passage stands.
    """
    rows = np.zeros(batch.passages.shape, np.int64)
    rows[batch.mask] = np.arange(int(batch.mask.sum()))
    return score(queries, passages[place_array(rows)])
